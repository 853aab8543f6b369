"""Python messages and stubs generated from proto/ with grpcio-tools."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

import grpc_tools
from grpc_tools import protoc

PROTO_DIR = Path(__file__).resolve().parents[3] / "proto"


class Stubs:
    """Loads generated modules by name: `stubs.module("vllm.inference_pb2_grpc")`."""

    def __init__(self, folder: Path):
        self.folder = folder
        if str(folder) not in sys.path:
            sys.path.insert(0, str(folder))

    def module(self, name: str) -> ModuleType:
        return importlib.import_module(name)

    def messages(self, proto: str) -> ModuleType:
        """The messages of one file, named as under proto/: `vllm/inference.proto`."""
        return self.module(proto.removesuffix(".proto").replace("/", ".").replace("-", "_") + "_pb2")

    def services(self, proto: str) -> ModuleType:
        """The stubs and servicers of one file, named as under proto/."""
        return self.module(proto.removesuffix(".proto").replace("/", ".").replace("-", "_") + "_pb2_grpc")


def compile_protos(folder: Path, proto_dir: Path = PROTO_DIR) -> Stubs:
    """Generates Python code for every schema under `proto_dir` into `folder`."""
    names = sorted(str(path.relative_to(proto_dir)) for path in proto_dir.rglob("*.proto"))
    # The schemas' own folders must not hide installed packages such as `grpc`: generated modules of
    # such a folder are loaded from the installed package instead.
    names = [name for name in names if not name.startswith("grpc/")]
    if names:
        well_known = Path(grpc_tools.__file__).parent / "_proto"
        code = protoc.main(["protoc", f"-I{proto_dir}", f"-I{well_known}", f"--python_out={folder}",
                            f"--grpc_python_out={folder}", *names])
        if code != 0:
            raise RuntimeError(f"protoc failed on {', '.join(names)}")
        for name in names:  # Packages proper, so that an installed one of the same name loses.
            for parent in Path(name).parents[:-1]:
                (folder / parent / "__init__.py").touch()
    return Stubs(folder)
