"""What a call writes into although it is older: told, copied before it is written, and put back as it was."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional

from exportguard import _core
from exportguard.rewrites.written import UndoneWrites

Way = Callable[[torch.Tensor], object]


@torch.library.custom_op("exportguard_tests::doubled_in_place", mutates_args={"x"})
def _doubled(x: torch.Tensor) -> None:
    x.mul_(2)


_STATE, _TOLD = torch.zeros(3), list[torch.Tensor]()


@torch.library.custom_op("exportguard_tests::watched_within", mutates_args=())
def _watched_within(x: torch.Tensor) -> torch.Tensor:
    with _core.WriteWatch() as watch:
        _STATE.add_(1)
        x.clone().mul_(2)
    _TOLD.extend(tensor for tensor, *_ in watch.taken())
    _STATE.add_(1)
    return x + 1


@torch.jit.script
def _scripted(x: torch.Tensor) -> torch.Tensor:
    return x.add_(1).neg()


def _by_cond(x: torch.Tensor) -> object:
    return torch.cond(x.sum() > 100, lambda t: t + 1, lambda t: t - 1, (x,)).add_(x.add_(1))


#: Each writes into the tensor that it is given, 3 x 4 numbers from 1 on.
WRITING: dict[str, Way] = {
    "an operator": lambda x: x.add_(1),
    "a view": lambda x: x[1].mul_(2),
    "a view of a view": lambda x: x.t().unsqueeze(0)[:, 2:].zero_(),
    "an element": lambda x: x.__setitem__((0, 0), 7.0),
    "a mask": lambda x: x.__setitem__(x > 5, 0.0),
    "out": lambda x: torch.add(x, 1, out=x),
    "several": lambda x: torch._foreach_add_([x, torch.ones(2)], 1.0),
    "data": lambda x: x.data.clamp_(2, 3),
    "detached": lambda x: x.detach().exp_(),
    "behind what does nothing": lambda x: functional.dropout(x, training=False).add_(1),
    "behind what may copy": lambda x: x.contiguous().add_(1),
    "behind a conversion to itself": lambda x: x.to(x.dtype).add_(1),
    "behind a reshape": lambda x: x.reshape(-1).cumsum_(0),
    "in another form": lambda x: x.t_(),
    "with another axis": lambda x: x.unsqueeze_(0),
    "resized": lambda x: x.resize_(2, 2).fill_(5),
    "an operator of another library": lambda x: torch.ops.exportguard_tests.doubled_in_place(x),
    "TorchScript": lambda x: _scripted(x),
    "vmap": lambda x: torch.vmap(lambda row: row.add_(1))(x),
    "scattered": lambda x: x.scatter_(0, torch.zeros(1, 4, dtype=torch.int64), 0.0),
    "under autograd": lambda x: torch.enable_grad()(lambda: x.add_(torch.ones(4, requires_grad=True)))(),
    "running statistics": lambda x: functional.batch_norm(
        torch.randn(5, 4), x[0], x[1] + 1, training=True, momentum=0.5
    ),
    "what follows a branch": _by_cond,
    "twice": lambda x: x.add_(1).mul_(3),
}
#: None writes into what it is given.
READING: dict[str, Way] = {
    "an operator": lambda x: x + 1,
    "a copy": lambda x: x.clone().add_(1),
    "a product": lambda x: (x @ x.t()).add_(1),
    "an expanded copy": lambda x: x.expand(2, 3, 4).contiguous().add_(1),
    "new memory of the same size": lambda x: torch.empty_like(x).copy_(x).zero_(),
    "a part that is copied": lambda x: x[x > 3].mul_(2),
    "attention": lambda x: functional.scaled_dot_product_attention(x[None], x[None], x[None]).add_(1),
    "a convolution": lambda x: functional.conv1d(x[None], torch.ones(2, 3, 2)).relu_(),
    "a mean": lambda x: x.mean(-1, keepdim=True).add_(1),
    "a layer": lambda x: functional.linear(x[None], torch.ones(2, 4), torch.ones(2)).mul_(2),
    "products": lambda x: torch.einsum("ij,kj->ik", x, x).std(0),
    "a sort": lambda x: x.sort()[0].add_(1),
    "a normalization": lambda x: functional.layer_norm(x, (4,)).add_(1),
    "a recurrent layer": lambda x: torch.nn.LSTM(4, 2)(x)[0].add_(1),
    "a branch": lambda x: torch.cond(x.sum() > 100, lambda t: t + 1, lambda t: t - 1, (x,)),
    "vmap": lambda x: torch.vmap(lambda row: (row * 2).add_(1))(x),
}


def _given() -> torch.Tensor:
    return torch.arange(1.0, 13.0).reshape(3, 4)


@pytest.mark.parametrize("way", WRITING)
def test_what_is_written_is_put_back(way: str) -> None:
    given = _given()
    version = given._version
    writes = UndoneWrites()
    with torch.no_grad(), writes.call():
        WRITING[way](given)
        assert not (given.shape == (3, 4) and torch.equal(given, _given()))
        assert way == "running statistics" or writes.has_written(given)
    if way != "running statistics":  # no schema says it: buffers are copied before each call
        assert torch.equal(given, _given())
        assert (given.stride(), given._version) == ((4, 1), version)


@pytest.mark.parametrize("way", READING)
def test_what_a_call_made_itself_is_not_kept(way: str) -> None:
    given = _given()
    with torch.no_grad(), _core.WriteWatch() as watch:
        READING[way](given)
    assert watch.taken() == []
    assert torch.equal(given, _given())


def test_a_call_that_writes_nothing_is_the_last_that_is_watched() -> None:
    given, writes = _given(), UndoneWrites()
    with writes.call():
        given + 1
    with writes.call():
        given.add_(1)
        assert not writes.has_written(given)


def test_watches_within_each_other_are_each_told() -> None:
    given, other = _given(), _given()
    with _core.WriteWatch() as outer:
        given.add_(1)
        with _core.WriteWatch() as inner:
            other.add_(1)
            assert [tensor is other for tensor, *_ in inner.taken()] == [True]
        given.add_(1)
    assert [tensor is one for (tensor, *_), one in zip(outer.taken(), (given, other), strict=True)] == [True, True]
    given.add_(1)
    assert outer.taken() == inner.taken() == []


def test_a_watch_within_the_code_of_an_operator_is_told_what_that_one_does() -> None:
    _TOLD.clear()
    given = _given()
    with _core.WriteWatch() as outer:
        torch.ops.exportguard_tests.watched_within(given)
        given.add_(1)
    assert [tensor is _STATE for tensor in _TOLD] == [True]
    assert [tensor is given for tensor, *_ in outer.taken()] == [True]  # what an operator does not say is its own


def test_what_has_no_data_is_told_and_not_copied() -> None:
    with FakeTensorMode() as mode:
        given = mode.from_tensor(_given())
        with _core.WriteWatch() as watch:
            given.add_(1)
            (given + 1).mul_(2)
    ((tensor, content, *_),) = watch.taken()
    assert tensor.untyped_storage()._cdata == given.untyped_storage()._cdata
    assert content is None


def test_what_was_written_is_put_back_where_the_call_fails() -> None:
    given, writes = _given(), UndoneWrites()

    def failing() -> None:
        with writes.call():
            given.add_(1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        failing()
    assert torch.equal(given, _given())
    given.add_(1)  # no watch is left
    with writes.call():
        pass
    assert torch.equal(given, _given())


def test_memory_of_other_libraries_is_copied_too() -> None:
    import numpy as np

    array = np.arange(1.0, 13.0, dtype=np.float32)
    with UndoneWrites().call():
        torch.from_numpy(array).add_(1)
    assert (array == np.arange(1.0, 13.0)).all()


def test_tensors_of_inference_mode_have_no_version_to_put_back() -> None:
    with torch.inference_mode():
        given = _given()
        with UndoneWrites().call():
            given.add_(1)
        assert torch.equal(given, _given())
