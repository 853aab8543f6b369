"""As the package itself: there to be imported."""


def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)

    def missing(*args, **kwargs):
        raise NotImplementedError(f"sgl_kernel.mamba.{name} needs CUDA")

    return missing
