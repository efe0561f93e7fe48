"""Optimizer of the Transformer (Vaswani et al. 2017, arXiv 1706.03762, section 5.3), which later papers also use."""

# With `optim.width` the learning rate is the paper's formula times `lr`.
ADAM = {'optimizer': 'adam', 'b1': 0.9, 'b2': 0.98, 'eps': 1e-9, 'schedule': 'inverse_sqrt'}
