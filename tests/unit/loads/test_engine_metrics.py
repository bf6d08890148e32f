"""Loads as engines write them, in texts of their own: what is read out of each."""

from __future__ import annotations

import subprocess
import sys

import pytest

from indexer.loads.engine_metrics import LINES_MAX, EngineLoad, read_loads

LONG_LABELS = """
import resource
from indexer.loads.engine_metrics import read_loads

resource.setrlimit(resource.RLIMIT_CPU, (3, 3))  # with what is loaded already
line = b"vllm:num_requests_running{%b} 1\\n" % (b"a" * 65_000)
print(read_loads(3 * line).of(0))
"""
VLLM = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 4.0
vllm:num_requests_running{engine="1",model_name="meta-llama/Llama-3.1-8B-Instruct"} 2.0
# HELP vllm:num_requests_waiting Number of requests waiting to be processed.
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 1.0
vllm:num_requests_waiting{engine="1",model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.0
# HELP vllm:num_requests_waiting_by_reason Number of waiting requests by reason.
# TYPE vllm:num_requests_waiting_by_reason gauge
vllm:num_requests_waiting_by_reason{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct",reason="capacity"} 1.0
# HELP vllm:kv_cache_usage_perc KV-cache usage. 1 means 100 percent usage.
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.4219
vllm:kv_cache_usage_perc{engine="1",model_name="meta-llama/Llama-3.1-8B-Instruct"} 0.05
# TYPE vllm:request_success_total counter
vllm:request_success_total{engine="0",finished_reason="stop"} 170.0
"""
OLD_VLLM = """\
vllm:num_requests_running{model_name="m"} 5.0
vllm:num_requests_waiting{model_name="m"} 12.0
vllm:gpu_cache_usage_perc{model_name="m"} 0.35
"""
SGLANG = """\
# HELP sglang:num_running_reqs The number of running requests.
# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 162.0
sglang:num_running_reqs{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="1"} 162.0
# TYPE sglang:num_used_tokens gauge
sglang:num_used_tokens{engine_type="unified",model_name="m",pp_rank="0",tp_rank="0"} 123859.0
# TYPE sglang:token_usage gauge
sglang:token_usage{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 0.28
# TYPE sglang:num_queue_reqs gauge
sglang:num_queue_reqs{engine_type="unified",model_name="m",moe_ep_rank="0",pp_rank="0",tp_rank="0"} 2826.0
"""
SGLANG_RANKS = """\
sglang:num_running_reqs{dp_rank="0",model_name="m",tp_rank="0"} 1.0
sglang:num_running_reqs{dp_rank="1",model_name="m",tp_rank="1"} 7.0
sglang:num_queue_reqs{dp_rank="1",model_name="m",tp_rank="1"} 3.0
"""
SGLANG_PRIORITIES = """\
sglang:num_running_reqs{model_name="m",priority=""} 4.0
sglang:num_running_reqs{model_name="m",priority="1"} 3.0
sglang:num_running_reqs{model_name="m",priority="2"} 1.0
sglang:num_queue_reqs{model_name="m",priority=""} 9.0
sglang:num_queue_reqs{model_name="m",priority="1"} 9.0
"""
TRTLLM = """\
# TYPE trtllm_num_requests_running gauge
trtllm_num_requests_running{engine_type="trtllm",model_name="m"} 3.0
# TYPE trtllm_num_requests_waiting gauge
trtllm_num_requests_waiting{engine_type="trtllm",model_name="m"} 2.0
# TYPE trtllm_kv_cache_utilization gauge
trtllm_kv_cache_utilization{engine_type="trtllm",model_name="m"} 0.5
"""
TRITON = """\
# HELP nv_trt_llm_request_metrics TRT LLM request metrics
# TYPE nv_trt_llm_request_metrics gauge
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="waiting",version="1"} 3
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="context",version="1"} 1
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="scheduled",version="1"} 4
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="max",version="1"} 512
nv_trt_llm_request_metrics{model="tensorrt_llm",request_type="active",version="1"} 7
# TYPE nv_trt_llm_kv_cache_block_metrics gauge
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="fraction",model="tensorrt_llm",version="1"} 0.6
nv_trt_llm_kv_cache_block_metrics{kv_cache_block_type="used",model="tensorrt_llm",version="1"} 2000
"""


def load(text: str, dp_rank: int = 0) -> EngineLoad | None:
    """Of one rank, out of that text."""
    return read_loads(text.encode()).of(dp_rank)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (VLLM, EngineLoad(4, 1, 0.4219)),
        (OLD_VLLM, EngineLoad(5, 12, 0.35)),
        (SGLANG, EngineLoad(162, 2826, 0.28)),
        (SGLANG_PRIORITIES, EngineLoad(4, 9, None)),
        (TRTLLM, EngineLoad(3, 2, 0.5)),
        (TRITON, EngineLoad(4, 3, 0.6)),
    ],
)
def test_each_engine_is_understood(text: str, expected: EngineLoad) -> None:
    """Running, waiting, and the share of the cache in use, under the names that each has for them."""
    assert expected == load(text)
    assert expected == load(text.replace("\n", "\n\n").removesuffix("\n"))


def test_ranks_are_told_apart() -> None:
    """By the label that the engine has for them; of one that is not there nothing is told."""
    assert [EngineLoad(4, 1, 0.4219), EngineLoad(2, 0, 0.05), None] == [load(VLLM, rank) for rank in range(3)]
    assert [EngineLoad(1, 0, None), EngineLoad(7, 3, None), None] == [load(SGLANG_RANKS, rank) for rank in range(3)]


def test_the_only_rank_is_meant_whatever_its_number() -> None:
    """A server of one rank may know itself as 0 while it is registered as 3."""
    assert EngineLoad(5, 12, 0.35) == load(OLD_VLLM, 3)


def test_models_of_one_server_are_added_up() -> None:
    """They share its slots."""
    assert EngineLoad(12, 12, 0.35) == load(OLD_VLLM + 'vllm:num_requests_running{model_name="n"} 7\n')


@pytest.mark.parametrize(
    "text",
    [
        "",
        "# only a comment\n",
        '[{"iter": 1, "numActiveRequests": 3}]',
        "vllm:num_requests_running_total 3\n",
        "vllm:num_requests_running\n",
        "vllm:num_requests_running NaN\nvllm:num_requests_waiting +Inf\n",
        "vllm:num_requests_running NaN\nvllm:num_requests_waiting 0\n",
        "vllm:num_requests_running 0\nvllm:num_requests_waiting -1\n",
        "vllm:num_requests_running -1\n",
        "vllm:num_requests_running 1e300\n",
        'vllm:num_requests_running{engine="0 4.0\n',
        "other_vllm:num_requests_running 4\n",
        "\xff\xfe" * 100,
    ],
)
def test_what_is_no_load_tells_none(text: str) -> None:
    """Whatever it is instead."""
    assert not read_loads(text.encode("latin-1"))
    assert load(text) is None


def test_a_number_that_is_none_costs_no_other() -> None:
    """The lines beside it count."""
    assert EngineLoad(0, 12, 0.35) == load(OLD_VLLM.replace(" 5.0", " five"))
    assert EngineLoad(5, 12, None) == load(OLD_VLLM.replace("0.35", "NaN"))


def test_labels_of_any_length_are_looked_through_once() -> None:
    """One that never comes to its value is tried at its beginning alone: else it takes a minute of the processor."""
    done = subprocess.run([sys.executable, "-c", LONG_LABELS], capture_output=True, text=True, check=False)
    assert (0, "EngineLoad(running=1.0, waiting=0.0, kv_usage=None)\n") == (done.returncode, done.stdout), done.stderr


def test_labels_are_found_among_what_is_none() -> None:
    """Also behind names that are none, and quotation marks inside values."""
    odd = '{1a="x",b="y\\"",engine="2",_="1"} 4\n'
    assert EngineLoad(4, 0, None) == read_loads(f"vllm:num_requests_running{odd}".encode()).of(2)


def test_lines_are_bounded() -> None:
    """What an engine says beyond that is not looked at."""
    many = "".join(f'vllm:num_requests_running{{engine="{rank}"}} 1\n' for rank in range(LINES_MAX + 10))
    assert EngineLoad(1, 0, None) == load(many, LINES_MAX - 1)
    assert load(many, LINES_MAX) is None
