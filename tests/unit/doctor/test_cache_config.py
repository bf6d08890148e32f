"""What an engine's metrics say of its cache, out of texts as engines write them."""

from __future__ import annotations

import pytest

from indexer.doctor.cache_config import CacheConfig, cache_config
from indexer.exposition import samples

VLLM = """\
# HELP vllm:cache_config_info Information of the LLMEngine CacheConfig
# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",enable_prefix_caching="True",engine="0",num_gpu_blocks="24188",x="None"} 1.0
vllm:cache_config_info{block_size="32",enable_prefix_caching="False",engine="1",num_gpu_blocks="7"} 1.0
vllm:num_requests_running{engine="0"} 3.0
"""


def test_of_the_rank_that_is_asked_for() -> None:
    """Series are told apart by their engine."""
    assert CacheConfig(16, 24_188, prefix_caching=True) == cache_config(VLLM)
    assert CacheConfig(32, 7, prefix_caching=False) == cache_config(VLLM, 1)


def test_of_the_first_where_ranks_are_not_told_apart() -> None:
    """Older engines have one series, and no label for it."""
    older = 'vllm:cache_config_info{block_size="16",num_cpu_blocks="7281",num_gpu_blocks="24188"} 1.0'

    assert CacheConfig(16, 24_188, None) == cache_config(older, 5)


def test_of_sglang() -> None:
    """By its own names."""
    assert CacheConfig(64, 1_000, None) == cache_config('sglang:cache_config_info{page_size="64",num_pages="1000"} 1\n')


@pytest.mark.parametrize(
    "text",
    [
        "",
        "vllm:cache_config_info",
        "vllm:cache_config_info{block_size=16} 1",
        'vllm:cache_config_info{block_size="None",num_gpu_blocks="-1"} 1',
        'vllm:cache_config_info{block_size="99999999999999999999"} 1',
        'vllm:cache_config_info{block_size="000000000016' + "0" * 5_000 + '"} 1',
        'vllm:cache_config_info{block_size="1',
        "\0" * 100,
        'vllm:cache_config_info{x="' + "a" * 70_000 + '"} 1',
    ],
)
def test_what_says_nothing_is_not_guessed(text: str) -> None:
    """Whatever answers there."""
    assert CacheConfig() == cache_config(text)


def test_samples_are_read_as_they_are_written() -> None:
    """Escapes, time stamps, no labels; of the names asked for alone."""
    text = 'a{x="1\\"\\\\\\n"} 2 1700000000000\na_b 3\nb 4\na NaNo\nc{le="+Inf"} +Inf\n'

    assert [("a", {"x": '1"\\\n'}, 2.0), ("c", {"le": "+Inf"}, float("inf"))] == [
        tuple(each) for each in samples(text, ("a", "c"))
    ]
