import copy
import io
import pickle

import numpy as np
import pytest
import torch
from comparing import assert_equal
from processes import run_python
from torch.utils.dlpack import from_dlpack, to_dlpack

# --- saving and loading ---


def through_file(value, **arguments):
    file = io.BytesIO()
    torch.save(value, file)
    file.seek(0)
    return torch.load(file, **arguments)


def test_save_and_load_keep_device_and_sharing():
    x = torch.randn(5, 5).xpu()
    y = torch.zeros(2, 5, dtype=torch.int, device="xpu")
    loaded = through_file([x, y, x, x.t()])
    assert [t.device for t in loaded] == [x.device] * 4
    assert_equal(loaded[0], x.cpu())
    loaded[0].fill_(5)
    assert torch.equal(loaded[2], loaded[0])
    assert torch.equal(loaded[3].t(), loaded[0])
    assert loaded[1].dtype == torch.int


def test_save_and_load_storages():
    x = torch.randn(4, device="xpu")
    loaded = through_file([x, x.storage()], weights_only=False)
    assert isinstance(loaded[1], torch.storage.TypedStorage)
    assert loaded[1]._untyped_storage.device.type == "xpu"
    loaded[0].fill_(7)
    assert loaded[1].tolist() == [7] * 4


def test_save_and_load_empty():
    for tensor in (torch.randn(4, 4).xpu(), torch.tensor([], device="xpu")):
        loaded = through_file(tensor)
        assert loaded.get_device() == tensor.get_device()
        assert loaded.shape == tensor.shape


def test_map_location():
    x = torch.arange(4.0)
    assert through_file(x.xpu(), map_location="cpu").device.type == "cpu"
    assert_equal(through_file(x, map_location="xpu"), x)
    assert_equal(through_file(x, map_location="xpu:0"), x)
    with pytest.raises(RuntimeError):
        through_file(x, map_location="xpu:99")


def test_pickle_and_deepcopy():
    x = torch.randn(3, 4).xpu().t()
    assert_equal(pickle.loads(pickle.dumps(x)), x.cpu())
    y = copy.deepcopy(x)
    assert_equal(y, x.cpu())
    assert y.stride() == x.stride()
    model = torch.nn.Linear(3, 4).xpu()
    twin = copy.deepcopy(model)
    assert_equal(twin.weight.data, model.weight.data.cpu())
    parameter = pickle.loads(pickle.dumps(model.weight))
    assert isinstance(parameter, torch.nn.Parameter)
    generator = torch.Generator("xpu").manual_seed(3)
    assert copy.copy(generator) is not None


def test_numpy_needs_the_cpu():
    with pytest.raises(TypeError, match="can't convert xpu:0 device type tensor to numpy"):
        torch.ones(2, device="xpu").numpy()
    assert np.array_equal(torch.ones(2, device="xpu").cpu().numpy(), np.ones(2, np.float32))


def test_memory_that_is_not_the_hosts_is_refused():
    out = run_python(
        """
from multiprocessing.reduction import ForkingPickler
import torch.multiprocessing
x = torch.ones(2, device="xpu")
for share in (x.share_memory_, x.untyped_storage().share_memory_, torch.nn.Linear(2, 2, device="xpu").share_memory,
              lambda: ForkingPickler.dumps(x), lambda: ForkingPickler.dumps(torch.empty(0, device="xpu"))):
    try:
        share()
    except RuntimeError as error:
        print(error)
assert not x.is_shared()
x.untyped_storage().resize_(16)
""",
        env={"OPENXPU_MEMORY": "buffer"},
    )
    assert out.stdout.splitlines() == 5 * [
        "memory of xpu:0 can't be shared between processes, because it is not host memory; "
        "send tensor.cpu() and call .to('xpu') in the receiver"
    ]


# --- DLPack ---


def test_dlpack_both_ways():
    x = torch.arange(6.0, device="xpu").view(2, 3)
    z = from_dlpack(to_dlpack(x))
    assert z.device == x.device
    z[0, 0] = 100
    assert x[0, 0].item() == 100
    y = torch.from_dlpack(x.t())
    assert y.data_ptr() == x.data_ptr() and y.stride() == (1, 3)
    assert x.__dlpack_device__()[0] == 14  # kDLOneAPI


def test_dlpack_keeps_the_memory():
    z = torch.from_dlpack(torch.full((1000,), 3.0, device="xpu"))
    other = torch.zeros(1000, device="xpu")
    assert_equal(z, torch.full((1000,), 3.0))
    del other


# --- views and sizes ---


def test_views_share_memory():
    x = torch.arange(24.0, device="xpu")
    for view in (
        x.view(4, 6), x.reshape(2, 12), x.as_strided((3, 4), (4, 1)), x.unfold(0, 4, 2), x[3:], x.view(torch.int32),
        x.view(2, 12).t(), x.view(12, 2).diagonal(), torch.view_as_complex(x.view(12, 2)), x.detach(), x.unsqueeze(0),
    ):  # fmt: skip
        assert view.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    torch.view_as_complex(x.view(12, 2))[0] = 50 + 60j
    assert x[:2].tolist() == [50, 60]
    torch.view_as_real(torch.view_as_complex(x.view(12, 2)))[0, 0] = 8
    assert x[0].item() == 8


def test_resize():
    x = torch.arange(6.0, device="xpu")
    x.resize_(2, 2)
    assert_equal(x, torch.arange(4.0).view(2, 2))
    x.resize_(4, 5)
    assert x.shape == (4, 5)
    assert_equal(x.view(-1)[:6], torch.arange(6.0))
    y = torch.empty(3, 4, device="xpu").t()
    y.resize_(4, 3)
    assert y.stride() == (1, 4)
    z = torch.empty(0, device="xpu").resize_(2, 3, 4, 5, memory_format=torch.channels_last)
    assert z.is_contiguous(memory_format=torch.channels_last)
    out = torch.empty(0, device="xpu")
    torch.add(torch.ones(3, device="xpu"), 1, out=out)
    assert_equal(out, torch.full((3,), 2.0))


def test_resize_fills_what_it_adds_where_results_must_be_the_same():
    from torch.testing._internal.common_utils import DeterministicGuard

    with DeterministicGuard(True, fill_uninitialized_memory=True):
        assert torch.ones(2, device="xpu").resize_(4).isnan().tolist() == [False, False, True, True]
        assert torch.ones(1, dtype=torch.int, device="xpu").resize_(2).tolist() == [1, 2**31 - 1]


def test_resize_that_fails_changes_nothing():
    x = torch.from_dlpack(torch.arange(6.0, device="xpu"))  # somebody else's memory
    for resize in (lambda: x.resize_(100), lambda: x.set_(x.untyped_storage(), 0, (50,), (2,))):
        with pytest.raises(RuntimeError, match="not resizable"):
            resize()
        assert x.shape == (6,)
    assert_equal(x, torch.arange(6.0))


def test_resize_of_lazy_clones():
    x = torch.arange(4.0, device="xpu")
    y = torch._lazy_clone(x)
    x.resize_(100)
    x[0] = 9
    assert_equal(x[:4], torch.tensor([9.0, 1, 2, 3]))
    assert_equal(y, torch.arange(4.0))


def test_resize_of_storages():
    x = torch.arange(8.0, device="xpu")
    storage = x.untyped_storage()
    storage.resize_(0)
    assert storage.nbytes() == 0
    storage.resize_(32)
    x.copy_(torch.arange(8.0))
    assert_equal(x, torch.arange(8.0))


def test_set():
    x, y = torch.arange(6.0, device="xpu"), torch.empty(0, device="xpu")
    y.set_(x)
    assert y.data_ptr() == x.data_ptr()
    y.set_(x.untyped_storage(), 2, (2, 2), (2, 1))
    assert_equal(y, torch.tensor([[2.0, 3], [4, 5]]))
    y.set_(x.untyped_storage())
    assert y.shape == (6,)
    y.set_()
    assert y.numel() == 0
    with pytest.raises(RuntimeError):
        y.set_(torch.arange(3.0).untyped_storage())


def test_module_to_and_back():
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    state = {name: value.clone() for name, value in model.state_dict().items()}
    model.xpu()
    assert all(p.device.type == "xpu" for p in model.parameters())
    model.cpu()
    for name, value in model.state_dict().items():
        assert torch.equal(value, state[name])
