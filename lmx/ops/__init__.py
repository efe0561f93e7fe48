"""Operations of the models: each is a plain equation, which a placement can replace by a faster implementation."""
