"""Stand-in for sgl_kernel, whose published build needs CUDA.

A dense decoder on the CPU calls none of its functions: where torch.ops.sgl_kernel has no operations SGLang takes the
AMX kernels as absent, and every layer uses its plain form. A call of any of them raises.
"""

from . import no_cuda

__version__ = "0.4.10+none"

no_cuda.apply()


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*args, **kwargs):
        raise NotImplementedError(f"sgl_kernel.{name} needs CUDA")

    return missing
