"""The maps of all methods: what each keeps, and all that depends on it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from streamembed.methods.alignment_matrix import AlignmentMap
from streamembed.methods.gram import GramMap
from streamembed.methods.isomap_map import IsomapMap
from streamembed.methods.kernel_map import KernelMap
from streamembed.methods.linear_projection import LinearMap
from streamembed.methods.neighbor_graph import GraphMap
from streamembed.methods.state import EmbeddingMap

MAPS: Mapping[str, type[EmbeddingMap]] = MappingProxyType(
    {
        "diffusion_map": KernelMap,
        "laplacian_eigenmaps": GraphMap,
        "linear_eigenmap": LinearMap,
        "classical_mds": GramMap,
        "pca": GramMap,
        "kernel_pca": GramMap,
        "lle": AlignmentMap,
        "isomap": IsomapMap,
    }
)
