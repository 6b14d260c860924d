"""Models compiled ahead of time (AOTInductor) and C++ wrappers of compiled functions, on xpu."""

from __future__ import annotations

import ctypes
import os
import re
import shutil
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import openxpu
import pytest
import torch
from aoti_models import CASES
from openxpu._tile import compile_module
from processes import SOURCE, environment, run, run_python
from torch import Tensor, nn
from torch._inductor.package import load_package
from torch.utils.cpp_extension import include_paths

pytest.importorskip("triton")
if shutil.which("g++") is None:
    pytest.skip("no C++ compiler", allow_module_level=True)

# What a package's library takes from libtorch beside an operator's function each.
IMPORTS = """
    _reinterpret_tensor clone clone_preserve_strides create_tensor_from_blob create_tensor_from_blob_v2
    delete_tensor_object device_type_cpu device_type_cuda device_type_xpu dtype_ get_data_ptr
    get_device_type get_dim get_dtype get_numel get_sizes get_storage_offset get_storage_size get_strides
    grad_mode_is_enabled grad_mode_set_enabled layout_strided new_tensor_handle warn copy_ item_ check
""".split()


@pytest.fixture(scope="module")
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of the packages that the chosen tests name; each is made by another process."""
    made: Path = tmp_path_factory.mktemp("packages")
    # a separate cache: processes that pack the same model at once would write the same files
    cache = str(tmp_path_factory.mktemp("inductor"))
    variables = environment({"TORCHINDUCTOR_COMPILE_THREADS": "1", "TORCHINDUCTOR_CACHE_DIR": cache})
    script = str(Path(__file__).with_name("aoti_models.py"))
    chosen = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    names = [
        name
        for name in CASES
        if name in ("encoder", "decoder") or any(each.get("name") == name for each in chosen)
    ]
    started = [
        subprocess.Popen(
            [sys.executable, script, str(made), *names[part::2]],
            env=variables,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for part in range(2)
    ]
    said = [process.communicate()[0] for process in started]
    for process, text in zip(started, said, strict=True):
        assert process.returncode == 0, text
    return made


@pytest.fixture(autouse=True)
def no_grad() -> Iterator[None]:
    with torch.no_grad():
        yield


def results(outputs: Tensor | tuple[Tensor, ...]) -> list[Tensor]:
    return [outputs] if isinstance(outputs, Tensor) else list(outputs)


def largest_difference(a: list[Tensor], b: list[Tensor]) -> float:
    assert [x.shape for x in a] == [x.shape for x in b]
    return max((x.double().cpu() - y.double().cpu()).abs().max().item() for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "encoder" else pytest.mark.extended) for name in CASES],
)
def test_numbers_are_those_of_the_eager_model(name: str, folder: Path) -> None:
    case = CASES[name]
    loaded = torch._inductor.aoti_load_package(str(folder / f"{name}.pt2"))
    eager, exact = case.build().to("xpu"), case.build().double()
    for size in (None, 2, 7, 32) if case.dynamic else (None,):
        given, again = case.arguments(size), case.arguments(size)
        references = [x.double() if x.is_floating_point() else x for x in case.arguments(size, device="cpu")]
        got, wanted, right = results(loaded(*given)), results(eager(*again)), results(exact(*references))
        assert all(x.is_xpu and x.dtype == y.dtype for x, y in zip(got, wanted, strict=True))
        # compare inputs that are modified in place too
        of_package = largest_difference([*got, *given], [*right, *references])
        of_eager = largest_difference([*wanted, *again], [*right, *references])
        if case.dtype is torch.float32:
            assert largest_difference([*got, *given], [*wanted, *again]) <= 1e-5
            assert of_package <= 1e-5
        else:
            assert of_package <= 1.5 * of_eager


def test_inputs_of_other_shapes_are_refused(folder: Path) -> None:
    loaded = torch._inductor.aoti_load_package(str(folder / "encoder.pt2"))
    case = CASES["encoder"]
    ids, given = case.arguments()
    wrong: list[tuple[tuple[Tensor, ...], str]] = [
        (case.arguments(33), "too large at 1, expected to be <= 32, but got: 33"),
        ((ids[:2], given[:2]), "unmatched dim value at 0, expected: 3, but got: 2"),
        ((ids.int(), given), "unmatched dtype"),
        ((ids.cpu(), given), "unmatched device type"),
        ((ids.t().contiguous().t(), given), "unmatched stride"),
    ]
    for inputs, text in wrong:
        with pytest.raises(RuntimeError, match=re.escape(text)):
            loaded(*inputs)
    assert (
        largest_difference(results(loaded(ids, given)), results(case.build().to("xpu")(ids, given))) <= 1e-5
    )


@pytest.mark.extended
def test_open_dimensions_of_none_and_one(tmp_path: Path) -> None:
    """Sizes 0 and 1 work as in the exported program, where only minimums from three on are checked."""

    class Net(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return (x @ x.new_ones(3, 2)).sin() + 1, y.cos().sum(1)

    net = Net()
    sizes = {"x": {0: torch.export.Dim("rows")}, "y": {0: torch.export.Dim("more", min=4)}}
    given = torch.randn(5, 3, device="xpu"), torch.randn(6, 3, device="xpu")
    program = torch.export.export(net, given, dynamic_shapes=sizes)
    path = torch._inductor.aoti_compile_and_package(program, package_path=str(tmp_path / "few.pt2"))
    loaded = torch._inductor.aoti_load_package(path)
    for rows in (0, 1, 2, 9):
        x, y = torch.randn(rows, 3, device="xpu"), torch.randn(4, 3, device="xpu")
        torch.testing.assert_close(results(loaded(x, y)), results(net(x, y)))
    with pytest.raises(RuntimeError, match="too small at 0, expected it to be >= 4, but got: 3"):
        loaded(x, y[:3])


def test_packages_note_what_they_are_compiled_for(folder: Path) -> None:
    noted = torch._C._aoti.AOTIModelPackageLoader.load_metadata_from_package(
        str(folder / "encoder.pt2"), "model"
    )
    assert noted["AOTI_COMPUTE_CAPABILITY"] == torch.xpu.get_device_capability()["target"]


def test_indices_out_of_range_are_errors(folder: Path) -> None:
    case = CASES["encoder"]
    loaded = torch._inductor.aoti_load_package(str(folder / "encoder.pt2"))
    ids, given = case.arguments()
    wrong = ids.clone()
    wrong[0, 3] = 50
    with pytest.raises(RuntimeError, match="index out of bounds: 0 <= tmp0 < 50"):
        loaded(wrong, given)
        torch.xpu.synchronize()
    assert largest_difference([loaded(ids, given)], [case.build().to("xpu")(ids, given)]) <= 1e-5


@pytest.mark.parametrize("runners", [1, 2])
def test_threads_with_streams_of_their_own(runners: int, folder: Path) -> None:
    case = CASES["encoder"]
    loaded = load_package(str(folder / "encoder.pt2"), num_runners=runners)
    eager = case.build().to("xpu")
    failures: list[str] = []

    def work(sizes: list[int]) -> None:
        try:
            with torch.no_grad(), torch.xpu.stream(torch.xpu.Stream()):
                for size in sizes * 10:
                    got = loaded(*inputs[size])
                    if largest_difference([got], [wanted[size]]) > 1e-5:
                        failures.append(f"size {size}")
        except Exception as error:
            failures.append(repr(error))

    inputs = {size: case.arguments(size) for size in range(3, 11)}
    wanted = {size: eager(*given) for size, given in inputs.items()}
    torch.xpu.synchronize()
    threads = [threading.Thread(target=work, args=(list(range(3 + i, 11, 2)),)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@pytest.mark.parametrize("name", ["encoder", "images"])  # images: with constants folded when it is loaded
@pytest.mark.parametrize("from_cpu", [False, True])
def test_constants_are_updated(name: str, from_cpu: bool, folder: Path) -> None:
    case = CASES[name]
    loaded = torch._inductor.aoti_load_package(str(folder / f"{name}.pt2"))
    model = case.build().to("xpu")
    given = case.arguments()
    before = loaded(*given)
    state = model.state_dict()
    names = [n for n in loaded.get_constant_fqns() if not n.startswith("_FOLDED_CONST_")]
    assert names and set(names) <= set(state)
    for i, value in enumerate(state.values()):
        if value.is_floating_point():
            value.mul_(1 + 0.1 * (i % 3))
    wanted = model(*given)
    assert largest_difference([before], [wanted]) > 1e-3
    update = {n: state[n].cpu() if from_cpu else state[n] for n in names}
    loaded.load_constants(update, check_full_update=True, **({"allow_h2d_copy": True} if from_cpu else {}))
    assert largest_difference([loaded(*given)], [wanted]) <= 1e-5
    with pytest.raises(RuntimeError):
        loaded.load_constants({}, check_full_update=True)


def test_constants_are_those_of_the_caller_where_it_says_so(folder: Path) -> None:
    case = CASES["encoder"]
    loaded = torch._inductor.aoti_load_package(str(folder / "encoder.pt2"))
    model = case.build().to("xpu")
    loaded.load_constants(model.state_dict(), check_full_update=True, user_managed=True)
    given = case.arguments()
    for factor in (1.0, 1.5):
        model.words.weight.mul_(factor)
        assert largest_difference([loaded(*given)], [model(*given)]) <= 1e-5


@pytest.mark.skipif(torch.xpu.get_device_capability()["type"] != "cpu", reason="names the processor twice")
def test_a_fresh_process_runs_them_on_a_second_device(folder: Path) -> None:
    """The process has no compiler."""
    script = f"""
import sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from aoti_models import CASES
from torch._inductor.package import load_package
from torch.utils.cpp_extension import include_paths

case = CASES["encoder"]
given = case.arguments(device="xpu:1")
with torch.no_grad():
    got = load_package({str(folder / "encoder.pt2")!r}, device_index=1)(*given)
    wanted = case.build().to("xpu:1")(*given)
assert got.device == torch.device("xpu:1"), got.device
torch.testing.assert_close(got, wanted, atol=1e-5, rtol=0)
"""
    run_python(script, env={"OPENXPU_DEVICE": "cpu,cpu", "PATH": "/nonexistent"})


def test_libraries_are_loaded_by_path(folder: Path, tmp_path: Path) -> None:
    """PyTorch's older interface, with two sets of constants to swap."""
    case = CASES["encoder"]
    with zipfile.ZipFile(folder / "encoder.pt2") as archive:
        archive.extractall(tmp_path)
    (library,) = tmp_path.rglob("*.so")
    runner = torch._C._aoti.AOTIModelContainerRunnerXpu(str(library), 1, "xpu:0", str(library.parent))
    model, given = case.build().to("xpu"), case.arguments()
    before = model(*given)
    assert largest_difference(runner.run(list(given)), [before]) <= 1e-5
    names = {original: name for name, original in runner.get_constant_names_to_original_fqns().items()}
    model.words.weight.mul_(2)
    state = model.state_dict()
    runner.update_constant_buffer({name: state[n] for n, name in names.items()}, True, True)
    assert largest_difference(runner.run(list(given)), [before]) <= 1e-5
    runner.swap_constant_buffer()
    assert largest_difference(runner.run(list(given)), [model(*given)]) <= 1e-5
    assert set(runner.get_constant_names_to_dtypes()) == set(names.values())
    runner.free_inactive_constant_buffer()


def library_of(package: Path, folder: Path) -> Path:
    """Extract the library from a package."""
    with zipfile.ZipFile(package) as archive:
        (name,) = (n for n in archive.namelist() if n.endswith(".so"))
        return Path(archive.extract(name, folder))


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name == "encoder" else pytest.mark.extended) for name in CASES],
)
def test_libraries_import_little(name: str, folder: Path, tmp_path: Path) -> None:
    library = str(library_of(folder / f"{name}.pt2", tmp_path))
    said = run(["readelf", "-dW", library]).stdout
    needed = set(re.findall(r"NEEDED.*\[(.*)\]", said))
    assert needed & {"libtorch_cpu.so", "libopenxpu_aoti.so"}
    assert not [n for n in needed if re.search("sycl|ze_loader|python|libOpenCL", n)]
    said = run(["nm", "-D", "-u", library]).stdout
    imports = set(re.findall(r"\bU (aoti_\w+)", said))
    assert len(imports) <= 45
    strange = [
        n
        for n in imports
        if not re.match("aoti_torch_(.*_)?xpu_|aoti_torch_get_current_sycl_queue", n)
        and not any(n.removeprefix("aoti_torch_").startswith(known) for known in IMPORTS)
    ]
    assert not strange
    assert not re.findall(r"\bU (_ZN\d*(?:c10|at)\w*|Py\w+)", said)


def test_kernels_travel_as_images(folder: Path, tmp_path: Path) -> None:
    """Kernel images are files of the package or part of its library; damaged ones and other devices' are errors."""
    kernel = "module { tt.func public @nothing(%x: !tt.ptr<f32>) { tt.return } }"
    other = compile_module(kernel.encode(), "bmg").image
    with zipfile.ZipFile(folder / "encoder.pt2") as archive:
        images = [n for n in archive.namelist() if n.endswith(".zebin")]
        assert images and all(archive.read(n).startswith(b'{"xpu_image"') for n in images)
        for how, text in (("damaged", "damaged"), ("other", "another kind of device")):
            with zipfile.ZipFile(tmp_path / f"{how}.pt2", "w") as changed:
                for name in archive.namelist():
                    content = archive.read(name)
                    if name in images:
                        content = content[:-1] + b"!" if how == "damaged" else other
                    changed.writestr(name, content)
            broken = load_package(str(tmp_path / f"{how}.pt2"))
            with pytest.raises(RuntimeError, match=text):
                broken(*CASES["encoder"].arguments())
    with zipfile.ZipFile(folder / "decoder.pt2") as archive:  # compiled with embed_kernel_binary
        assert b'{"xpu_image"' in library_of(folder / "decoder.pt2", tmp_path).read_bytes()


def test_each_operator_of_the_header_has_its_function() -> None:
    package = Path(openxpu.__file__).parent
    header = package / "include/torch/csrc/inductor/aoti_torch/generated/c_shim_xpu.h"
    names = re.findall(r"AOTITorchError (aoti_torch_xpu_\w+)\(", header.read_text())
    library = ctypes.CDLL(str(package / "libopenxpu_aoti.so"))
    assert len(names) > 150
    assert not [name for name in names if not hasattr(library, name)]


def test_without_a_compiler_the_error_says_so() -> None:
    done = run_python(
        "torch._inductor.config.cpp_wrapper = True\n"
        "torch.compile(lambda x: x.sin() + 1)(torch.ones(8, device='xpu'))",
        env={
            "CXX": "/nonexistent/compiler",
            "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1",
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        },
        status=None,
    )
    assert done.returncode
    assert re.search("C\\+\\+ compiler|InvalidCxxCompiler", done.stderr.splitlines()[-1] + done.stderr[-600:])


CMAKE = shutil.which("cmake", path=f"{Path(sys.executable).parent}:{os.environ.get('PATH', '')}")


@pytest.mark.extended
@pytest.mark.skipif(CMAKE is None, reason="no cmake")
@pytest.mark.parametrize("embedded", [False, True])
def test_packages_of_cpp_alone(embedded: bool, tmp_path: Path, fresh_compiler: None) -> None:
    """PyTorch builds such packages when it loads them, users with CMake; one image serves all devices of a target."""
    case = CASES["images"]
    model, given = case.build().float().to("xpu"), case.arguments()
    wanted = model(*given)
    options = {
        "aot_inductor.package_cpp_only": True,
        "aot_inductor.embed_kernel_binary": embedded,
        "aot_inductor.emit_multi_arch_kernel": embedded,
        "cpp.vec_isa_ok": True,
    }
    path = torch._inductor.aoti_compile_and_package(
        torch.export.export(model, given),
        package_path=str(tmp_path / "images.pt2"),
        inductor_configs=options,
    )
    with zipfile.ZipFile(path) as archive:
        names = archive.namelist()
        archive.extractall(tmp_path)
    assert not [n for n in names if n.endswith(".so")]
    assert bool([n for n in names if n.endswith(".zebin")]) != embedded
    (weights,) = tmp_path.rglob("*.weights.o")  # written by openxpu, not by a compiler
    said = run(["readelf", "-SW", weights]).stdout
    assert re.search(r"\.data +PROGBITS", said) and ".comment" not in said
    assert largest_difference([load_package(path)(*given)], [wanted]) <= 1e-5

    (lists,) = tmp_path.rglob("CMakeLists.txt")
    package = str(Path(openxpu.__file__).parent)
    # the package folder is named only where users can override it
    assert lists.read_text().count(package) == 1
    moved = tmp_path / "elsewhere"
    moved.symlink_to(package)
    lists.write_text(lists.read_text().replace(package, "/nonexistent"))
    build = tmp_path / "build"
    for command in (
        ["-S", str(lists.parent), "-B", str(build), f"-DOPENXPU_DIR={moved}"],
        ["--build", str(build)],
    ):
        run([CMAKE, *command], env={"CMAKE_PREFIX_PATH": torch.utils.cmake_prefix_path})
    (library,) = build.glob("*.so")
    runner = torch._C._aoti.AOTIModelContainerRunnerXpu(str(library), 1, "xpu:0", str(lists.parent))
    assert largest_difference(runner.run(list(given)), [wanted]) <= 1e-5


class Chosen(nn.Module):
    """The model with which program.cpp compares its results."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.softmax(x.sin() * 3, 1)


@pytest.mark.parametrize("library", ["libopenxpu_torch.so", "libopenxpu_aoti.so"])
def test_libraries_for_cpp_know_no_python(library: str) -> None:
    path = str(Path(openxpu.__file__).parent / library)
    said = run(["readelf", "-dW", path]).stdout
    assert "libtorch_cpu.so" in said and not re.search(r"NEEDED.*python", said)
    said = run(["nm", "-D", "-u", path]).stdout
    assert not re.findall(r"\b_?Py[A-Z_]\w+|\bTHP\w+", said)


def test_a_program_without_an_interpreter(tmp_path: Path, fresh_compiler: None) -> None:
    """The program loads one library: operators, gradients, random numbers, streams, a package, errors."""
    rows = torch.export.Dim("rows", min=2, max=64)
    x = torch.rand(5, 8, device="xpu")
    package = torch._inductor.aoti_compile_and_package(
        torch.export.export(Chosen(), (x,), dynamic_shapes={"x": {0: rows}}),
        package_path=str(tmp_path / "chosen.pt2"),
    )
    libraries = Path(torch.__file__).parent / "lib"
    include = [f"-I{path}" for path in include_paths()]
    program = tmp_path / "program"
    source = str(Path(__file__).with_name("program.cpp"))
    linked = [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-ltorch_cpu", "-lc10", "-ldl"]
    run(["g++", "-std=c++20", "-O0", *include, source, "-o", program, *linked])
    opened = str(Path(openxpu.__file__).parent / "libopenxpu_torch.so")
    run([program, opened, package])


@pytest.mark.extended
@pytest.mark.skipif(CMAKE is None, reason="no cmake")
def test_packages_run_from_cpp(folder: Path, tmp_path: Path) -> None:
    """Build the example's program with CMake: static and dynamic sizes, results as in eager mode, no libpython."""
    build = tmp_path / "build"
    source = SOURCE.parent / "examples/cpp"
    prefixes = f"{torch.utils.cmake_prefix_path};{openxpu.cmake_prefix_path}"
    for command in (
        ["-S", str(source), "-B", str(build), f"-DCMAKE_PREFIX_PATH={prefixes}", "-DCMAKE_BUILD_TYPE=Debug"],
        ["--build", str(build)],
    ):
        run([CMAKE, *command])
    program = str(build / "run_package")
    for name, sizes in (("images", [None]), ("encoder", [None, 7, 2])):
        case = CASES[name]
        files: list[Path] = []
        wanted = []
        for i, size in enumerate(sizes):
            given = case.arguments(size)
            wanted.append(results(case.build().to("xpu")(*given)))
            files += [tmp_path / f"{name}{i}.pt", tmp_path / f"{name}{i}.out"]
            torch.save(tuple(x.cpu() for x in given), files[-2])
        env = {"LD_DEBUG": "files", "LD_DEBUG_OUTPUT": str(tmp_path / f"{name}.ld")}
        run([program, folder / f"{name}.pt2", *files], env=env)
        (loaded,) = tmp_path.glob(f"{name}.ld.*")
        assert "libopenxpu_torch.so" in loaded.read_text()
        assert not re.search("libpython|libtorch_python", loaded.read_text())
        for output, right in zip(files[1::2], wanted, strict=True):
            assert largest_difference(list(torch.load(output)), right) <= 1e-5
    assert "file open failed" in run([program, "/nonexistent.pt2", "a", "b"], status=1).stderr


@pytest.fixture
def cpp_wrapper(fresh_compiler: None) -> Iterator[Callable[[nn.Module], Callable[..., Tensor]]]:
    with torch._inductor.config.patch({"cpp_wrapper": True, "cpp.vec_isa_ok": True}):
        yield lambda model: torch.compile(model, dynamic=True)


@pytest.mark.extended
def test_cpp_wrapper(cpp_wrapper: Callable[[nn.Module], Callable[..., Tensor]]) -> None:
    """Kernels, a product and attention; changing sizes; the first call, which autotunes, and later ones."""
    case = CASES["llama"]
    model = case.build().float().to("xpu")
    compiled = cpp_wrapper(model)
    for size in (12, 12, 9, 20):
        x = case.inputs(size)[0].to("xpu")
        assert largest_difference([compiled(x)], [model(x)]) <= 1e-5


class Handles:
    """Passes tensors to C functions and takes their results: a handle is the address of a C++ tensor."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(str(Path(openxpu.__file__).parent / "libopenxpu_aoti.so"))
        self.pointer = ctypes.pythonapi.PyCapsule_GetPointer
        self.pointer.restype, self.pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
        self.capsule = ctypes.pythonapi.PyCapsule_New
        self.capsule.restype = ctypes.py_object
        self.capsule.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]

    def of(self, tensor: Tensor) -> ctypes.c_void_p:
        (made,) = torch._C._aoti.unsafe_alloc_void_ptrs_from_tensors([tensor])
        return ctypes.c_void_p(self.pointer(made, None))

    def refuses(self, name: str, *tensors: Tensor) -> bool:
        """Return whether ``aoti_torch_xpu_NAME``, called with tensors alone, fails."""
        return getattr(self.library, f"aoti_torch_xpu_{name}")(*map(self.of, tensors)) != 0

    def call(self, name: str, *arguments: object, results: int = 1) -> list[Tensor]:
        """Call ``aoti_torch_xpu_NAME``: numbers in a list are passed as pointer and count, a tuple is optional."""
        given: list[object] = []
        for argument in arguments:
            if isinstance(argument, Tensor):
                given.append(self.of(argument))
            elif isinstance(argument, list) and argument and isinstance(argument[0], Tensor):
                given += [
                    (ctypes.c_void_p * len(argument))(*map(self.of, argument)),
                    ctypes.c_int64(len(argument)),
                ]
            elif isinstance(argument, list):
                given += [(ctypes.c_int64 * len(argument))(*argument), ctypes.c_int64(len(argument))]
            elif isinstance(argument, tuple):
                (value,) = argument
                value = self.of(value) if isinstance(value, Tensor) else value
                given.append(None if value is None else ctypes.byref(value))
            else:
                given.append(argument)
        made = [ctypes.c_void_p() for _ in range(results)]
        assert getattr(self.library, f"aoti_torch_xpu_{name}")(*given, *map(ctypes.byref, made)) == 0
        return list(
            torch._C._aoti.alloc_tensors_by_stealing_from_void_ptrs(
                [self.capsule(handle, None, None) for handle in made]
            )
        )


def test_operators_as_c_functions() -> None:
    """One operator for each form of arguments: out tensors, optional numbers, lists, several results."""
    handles = Handles()
    a, b = torch.randn(5, 7, device="xpu"), torch.randn(7, 3, device="xpu")
    product = torch.zeros(5, 3, device="xpu")
    handles.call("mm_out", product, a, b, results=0)
    assert torch.equal(product, a @ b)
    (sums,) = handles.call("cumsum", a, ctypes.c_int64(1), (ctypes.c_int32(7),))  # float64
    assert sums.dtype is torch.float64 and torch.equal(sums, a.cumsum(1, dtype=torch.float64))
    (sums,) = handles.call("cumsum", a, ctypes.c_int64(0), None)
    assert torch.equal(sums, a.cumsum(0))
    (joined,) = handles.call("cat", [a, a * 2], ctypes.c_int64(1))
    assert torch.equal(joined, torch.cat([a, a * 2], 1))
    ordered = handles.call(
        "sort_stable", a, (ctypes.c_int32(1),), ctypes.c_int64(1), ctypes.c_int32(1), results=2
    )
    assert all(map(torch.equal, ordered, torch.sort(a, dim=1, descending=True, stable=True)))
    with torch.autocast("xpu", torch.bfloat16):  # compiled code ignores autocast
        handles.call("mm_out", product, a, b, results=0)
    assert torch.equal(product, a @ b)
    weight = torch.randn(7, 3, device="xpu", requires_grad=True)
    with torch.enable_grad():
        handles.call("mm_out", product, a, weight, results=0)
    assert not product.requires_grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64, torch.int64], ids=str)
def test_products_as_c_functions(dtype: torch.dtype) -> None:
    """Products that bypass the dispatcher, of any strides, and cases that need the dispatcher."""
    handles, two, three = Handles(), ctypes.c_double(2), ctypes.c_double(3)

    def numbers(*sizes: int) -> Tensor:
        return torch.randint(-4, 5, sizes).to(dtype)

    a, b, more = numbers(4, 6, 10), numbers(4, 10, 3), numbers(1, 3)
    for x, y in (
        (a[1], b[1]),
        (a[:, 0, ::2][:, :3].t(), b[0, :4]),
        (a[2, :, 3:7], b[3, :4]),
        (a[0, :, :0], b[0, :0]),
    ):
        out = torch.full((x.size(0), y.size(1)), 7, dtype=dtype, device="xpu")
        handles.call("mm_out", out, x.to("xpu"), y.to("xpu"), results=0)
        assert torch.equal(out.cpu(), x @ y)
        if dtype is torch.int64:  # in C, addmm's factors are doubles
            continue
        handles.call("addmm_out", out, more.to("xpu"), x.to("xpu"), y.to("xpu"), two, three, results=0)
        assert torch.equal(out.cpu(), 2 * more + 3 * (x @ y))
    batch = torch.empty(4, 6, 3, dtype=dtype, device="xpu")
    handles.call("bmm_out", batch, a.to("xpu"), b[:1].to("xpu").expand(4, 10, 3), results=0)
    assert torch.equal(batch.cpu(), a @ b[:1])
    if dtype.is_complex:
        handles.call("bmm_out", batch, a.to("xpu").conj(), b.to("xpu"), results=0)
        assert torch.equal(batch.cpu(), a.conj() @ b)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        handles.call("bmm_out", batch, a.to("xpu"), b.to("xpu"), results=0)
    assert "aten::bmm" in {event.name for event in profile.events()}


@pytest.mark.parametrize(
    "sizes", [((5, 6), (7, 3), (5, 3)), ((5, 7), (7,), (5, 1)), ((2, 5, 7), (7, 3), (5, 3))], ids=str
)
def test_products_that_fail_as_c_functions(sizes: Sequence[tuple[int, ...]]) -> None:
    handles = Handles()
    a, b, out = (torch.ones(size, device="xpu") for size in sizes)
    for x, y in ((a, b), (a.double(), b.double())):
        assert handles.refuses("mm_out", out, x, y)
        assert torch.equal(out, torch.ones_like(out))


@pytest.mark.parametrize("name", ["mm_out", "bmm_out"])
@pytest.mark.parametrize("less", range(3))
def test_results_of_another_size_as_c_functions(name: str, less: int) -> None:
    """PyTorch resizes an out tensor to the product's size."""
    a, b = torch.randn(4, 6, 5, device="xpu"), torch.randn(4, 5, 3, device="xpu")
    size = [4, 6, 3]
    size[less] -= 1
    if name == "mm_out":
        a, b, size = a[0], b[0], size[1:]
    out = torch.zeros(size, device="xpu")
    Handles().call(name, out, a, b, results=0)
    assert torch.equal(out, a @ b)


def test_a_product_of_other_dtypes_fails_as_a_c_function() -> None:
    handles = Handles()
    a, b, out = (torch.ones(4, 4, device="xpu") for _ in range(3))
    for x, y in ((a.double(), b), (a, b.half()), (a.double(), b.double())):
        assert handles.refuses("mm_out", out, x, y)
        assert torch.equal(out, torch.ones_like(out))


def test_fused_operators_as_c_functions() -> None:
    handles = Handles()
    x, w, b = (torch.randn(*s, device="xpu") for s in ((2, 4, 9, 9), (6, 4, 3, 3), (6,)))
    other = torch.randn(2, 6, 9, 9, device="xpu")
    places = ([1, 1], [1, 1], [1, 1])  # padding, stride, dilation
    none = (None, ctypes.c_int64(0), None)  # scalars, their number, algorithm
    operator = torch.ops.mkldnn._convolution_pointwise
    one = ctypes.c_int64(1)
    (got,) = handles.call("mkldnn__convolution_pointwise", x, w, (b,), *places, one, b"relu", *none)
    assert torch.equal(got, operator(x, w, b, *places, 1, "relu", [], None))
    slope = (ctypes.POINTER(ctypes.c_double) * 1)(ctypes.pointer(ctypes.c_double(0.25)))
    (got,) = handles.call(
        "mkldnn__convolution_pointwise",
        x,
        w,
        None,
        *places,
        one,
        b"leaky_relu",
        slope,
        one,
        (ctypes.c_char_p(b""),),
    )
    assert torch.equal(got, operator(x, w, None, *places, 1, "leaky_relu", [0.25], ""))
    relu = (ctypes.c_char_p(b"relu"),)
    rest = (one, b"add", None, relu, *none)
    (got,) = handles.call("mkldnn__convolution_pointwise_binary", x, other, w, (b,), *places, *rest)
    wanted = operator.binary(x, other, w, b, *places, 1, "add", None, "relu", [], None)
    assert torch.equal(got, wanted)
    (got,) = handles.call("mkldnn__convolution_pointwise_binary_", other, x, w, (b,), *places, *rest)
    assert torch.equal(got, wanted) and torch.equal(other, wanted)


def test_quantized_operators_as_c_functions() -> None:
    handles, onednn = Handles(), torch.ops.onednn
    number, real = ctypes.c_int64, ctypes.c_double
    scale, zero = torch.tensor(0.02, device="xpu"), torch.tensor(5, device="xpu")
    scales, zeros = torch.rand(6, device="xpu") / 50, torch.zeros(6, dtype=torch.int64, device="xpu")
    bias = torch.randn(6, device="xpu")
    to_float = (ctypes.c_int32(6),)
    x = torch.randint(0, 255, (3, 8), dtype=torch.uint8, device="xpu")
    packed = onednn.qlinear_prepack(torch.randint(-128, 127, (6, 8), dtype=torch.int8, device="xpu"), None)
    given = (x, scale, zero, packed, scales, zeros)
    end = (real(1.0), number(0), to_float)
    (got,) = handles.call("_qlinear_pointwise_tensor", *given, (bias,), *end, b"relu", None, number(0), b"")
    assert torch.equal(
        got, onednn.qlinear_pointwise.tensor(*given, bias, 1.0, 0, torch.float32, "relu", [], "")
    )
    other = torch.randn(3, 6, device="xpu")
    last = (real(1.0), number(0), b"sum", real(1.0), b"relu", None, number(0), b"")
    copied = other.clone()
    (got,) = handles.call("_qlinear_pointwise_binary_tensor", *given, (copied,), (bias,), *end, *last)
    wanted = onednn.qlinear_pointwise.binary_tensor(
        *given, other, bias, 1.0, 0, torch.float32, 1.0, 0, "sum", 1.0, "relu", [], ""
    )
    assert torch.equal(got, wanted)

    x = torch.randint(0, 255, (2, 4, 5, 5), dtype=torch.uint8, device="xpu")
    w = torch.randint(-128, 127, (6, 4, 3, 3), dtype=torch.int8, device="xpu")
    how = ([1, 1], [1, 1], [1, 1])
    packed = onednn.qconv_prepack(w, scales, 0.02, 5, *how, 1, [2, 4, 5, 5])
    given = (x, scale, zero, packed, scales, zeros)
    one, none = number(1), (None, number(0), (ctypes.c_char_p(b""),))
    (got,) = handles.call("_qconv_pointwise_tensor", *given, (bias,), *how, one, *end, b"relu", *none)
    plain = (bias, *how, 1, 1.0, 0, torch.float32)
    assert torch.equal(got, onednn.qconv_pointwise.tensor(*given, *plain, "relu", [], ""))
    sums = torch.randn(2, 6, 5, 5, device="xpu")
    copied = sums.clone()
    last = (real(1.0), number(0), b"sum", (real(1.0),), (ctypes.c_char_p(b"relu"),), *none)
    (got,) = handles.call("_qconv2d_pointwise_binary_tensor", *given, copied, (bias,), *how, one, *end, *last)
    wanted = onednn.qconv2d_pointwise.binary_tensor(*given, sums, *plain, 1.0, 0, "sum", 1.0, "relu", [], "")
    assert torch.equal(got, wanted)
