"""The flight recorder of xpu's process groups, under the names that PyTorch uses.

``torch._C._distributed_c10d`` gets ``_dump_xccl_trace`` and ``_dump_xccl_trace_json``, as in builds for XPU.
``_dump_fr_trace`` and ``_dump_fr_trace_json`` return these entries together with Gloo's. Dumps have the
format of PyTorch's recorder; ``torch.distributed.flight_recorder.fr_trace`` reads them.
"""

from __future__ import annotations

import functools
import json
import pickle
from typing import Any

import openxpu

Dump = dict[str, Any]


def _recorded(entries: bool, stacks: bool, only_active: bool) -> bytes:
    from openxpu import _distributed

    return bytes(_distributed.dump_trace(entries, stacks, only_active))


def _with_words(dump: Dump) -> Dump:
    """Convert to the JSON form: integers in group states become strings, missing times 0."""
    dump["pg_status"] = {
        group: {name: str(number) for name, number in state.items()}
        for group, state in dump["pg_status"].items()
    }
    for entry in dump.get("entries", ()):
        for time in ("time_discovered_started_ns", "time_discovered_completed_ns"):
            entry[time] = entry[time] or 0
    if not dump.get("entries"):
        dump.pop("entries", None)
    return dump


def dump(
    includeCollectives: bool | None = None,  # noqa: N803  PyTorch's names
    includeStackTraces: bool | None = None,  # noqa: N803
    onlyActive: bool | None = None,  # noqa: N803
) -> bytes:
    """Return a pickled dictionary; optionally with entries, with stacks, with incomplete entries only."""
    return _recorded(includeCollectives is not False, includeStackTraces is not False, bool(onlyActive))


def dump_json(includeCollectives: bool | None = None, onlyActive: bool | None = None) -> bytes:  # noqa: N803
    """Return the same as JSON, without stacks."""
    return json.dumps(_with_words(pickle.loads(dump(includeCollectives, False, onlyActive)))).encode()


def _merge(theirs: Dump, ours: Dump) -> Dump:
    """Merge xpu's entries into PyTorch's own dump (Gloo's groups) by time, renumbering groups and records."""
    if "entries" in ours:
        groups = max((int(group) + 1 for group in theirs["pg_status"]), default=0)
        both = [*theirs.get("entries", ()), *ours["entries"]]
        first = sum(dump["entries"][0]["record_id"] for dump in (theirs, ours) if dump.get("entries"))
        for entry in ours["entries"]:
            entry["pg_id"] += groups
        both.sort(key=lambda entry: entry["time_created_ns"])
        for number, entry in enumerate(both, first):
            entry["record_id"] = number
        theirs["entries"] = both
        ours["pg_status"] = {str(int(group) + groups): state for group, state in ours["pg_status"].items()}
    theirs["pg_status"] = {**theirs["pg_status"], **ours["pg_status"]}
    theirs["pg_config"] = {**theirs["pg_config"], **ours["pg_config"]}
    theirs["comm_lib_version"] = theirs["comm_lib_version"] or ours["comm_lib_version"]
    return theirs


def enter(library: Any) -> None:
    """Add the functions to ``torch._C._distributed_c10d``, passed as `library`."""
    own, own_json = library._dump_fr_trace, library._dump_fr_trace_json

    @functools.wraps(own)
    def merged(
        includeCollectives: bool | None = None,  # noqa: N803
        includeStackTraces: bool | None = None,  # noqa: N803
        onlyActive: bool | None = None,  # noqa: N803
    ) -> bytes:
        asked = (includeCollectives, includeStackTraces, onlyActive)
        return pickle.dumps(_merge(pickle.loads(own(*asked)), pickle.loads(dump(*asked))))

    @functools.wraps(own_json)
    def merged_json(includeCollectives: bool | None = None, onlyActive: bool | None = None) -> bytes:  # noqa: N803
        asked = (includeCollectives, onlyActive)
        return json.dumps(_merge(json.loads(own_json(*asked)), json.loads(dump_json(*asked)))).encode()

    library._dump_fr_trace, library._dump_fr_trace_json = merged, merged_json
    library._dump_xccl_trace, library._dump_xccl_trace_json = dump, dump_json
    library.get_xccl_version = lambda: f"openxpu {openxpu.__version__}"
