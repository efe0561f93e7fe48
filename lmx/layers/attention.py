"""The attention backend of a resumed run."""

from __future__ import annotations

from lmx.kernels.attention import settle as settle
