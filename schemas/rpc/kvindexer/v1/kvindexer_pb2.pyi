from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LookupRequest(_message.Message):
    __slots__ = ("model", "token_ids", "token_bytes", "block_hashes", "block_size", "prompt_tokens", "scheme", "prompt", "messages_json", "tools_json", "documents_json", "chat_template_kwargs_json", "add_generation_prompt", "continue_final_message", "add_special_tokens", "lora_name", "cache_salt", "tenant", "mm_items", "pods", "pod_roles", "max_lag_ms", "partial", "limit", "group", "min_sequence", "request_id", "timeout_ms")
    class MinSequenceEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HASHES_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    SCHEME_FIELD_NUMBER: _ClassVar[int]
    PROMPT_FIELD_NUMBER: _ClassVar[int]
    MESSAGES_JSON_FIELD_NUMBER: _ClassVar[int]
    TOOLS_JSON_FIELD_NUMBER: _ClassVar[int]
    DOCUMENTS_JSON_FIELD_NUMBER: _ClassVar[int]
    CHAT_TEMPLATE_KWARGS_JSON_FIELD_NUMBER: _ClassVar[int]
    ADD_GENERATION_PROMPT_FIELD_NUMBER: _ClassVar[int]
    CONTINUE_FINAL_MESSAGE_FIELD_NUMBER: _ClassVar[int]
    ADD_SPECIAL_TOKENS_FIELD_NUMBER: _ClassVar[int]
    LORA_NAME_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MM_ITEMS_FIELD_NUMBER: _ClassVar[int]
    PODS_FIELD_NUMBER: _ClassVar[int]
    POD_ROLES_FIELD_NUMBER: _ClassVar[int]
    MAX_LAG_MS_FIELD_NUMBER: _ClassVar[int]
    PARTIAL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    MIN_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_MS_FIELD_NUMBER: _ClassVar[int]
    model: str
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    token_bytes: bytes
    block_hashes: _containers.RepeatedScalarFieldContainer[int]
    block_size: int
    prompt_tokens: int
    scheme: str
    prompt: str
    messages_json: str
    tools_json: str
    documents_json: str
    chat_template_kwargs_json: str
    add_generation_prompt: bool
    continue_final_message: bool
    add_special_tokens: bool
    lora_name: str
    cache_salt: str
    tenant: str
    mm_items: _containers.RepeatedCompositeFieldContainer[MmItem]
    pods: _containers.RepeatedScalarFieldContainer[str]
    pod_roles: _containers.RepeatedScalarFieldContainer[str]
    max_lag_ms: int
    partial: bool
    limit: int
    group: str
    min_sequence: _containers.ScalarMap[str, int]
    request_id: str
    timeout_ms: int
    def __init__(self, model: _Optional[str] = ..., token_ids: _Optional[_Iterable[int]] = ..., token_bytes: _Optional[bytes] = ..., block_hashes: _Optional[_Iterable[int]] = ..., block_size: _Optional[int] = ..., prompt_tokens: _Optional[int] = ..., scheme: _Optional[str] = ..., prompt: _Optional[str] = ..., messages_json: _Optional[str] = ..., tools_json: _Optional[str] = ..., documents_json: _Optional[str] = ..., chat_template_kwargs_json: _Optional[str] = ..., add_generation_prompt: _Optional[bool] = ..., continue_final_message: _Optional[bool] = ..., add_special_tokens: _Optional[bool] = ..., lora_name: _Optional[str] = ..., cache_salt: _Optional[str] = ..., tenant: _Optional[str] = ..., mm_items: _Optional[_Iterable[_Union[MmItem, _Mapping]]] = ..., pods: _Optional[_Iterable[str]] = ..., pod_roles: _Optional[_Iterable[str]] = ..., max_lag_ms: _Optional[int] = ..., partial: _Optional[bool] = ..., limit: _Optional[int] = ..., group: _Optional[str] = ..., min_sequence: _Optional[_Mapping[str, int]] = ..., request_id: _Optional[str] = ..., timeout_ms: _Optional[int] = ...) -> None: ...

class MmItem(_message.Message):
    __slots__ = ("hash", "offset", "length")
    HASH_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    LENGTH_FIELD_NUMBER: _ClassVar[int]
    hash: str
    offset: int
    length: int
    def __init__(self, hash: _Optional[str] = ..., offset: _Optional[int] = ..., length: _Optional[int] = ...) -> None: ...

class LookupResponse(_message.Message):
    __slots__ = ("request_id", "model", "lora_name", "resolved_by", "nearest_model", "prompt_tokens", "state", "reason", "pods", "tokenizer", "shards", "took_us")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LORA_NAME_FIELD_NUMBER: _ClassVar[int]
    RESOLVED_BY_FIELD_NUMBER: _ClassVar[int]
    NEAREST_MODEL_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PODS_FIELD_NUMBER: _ClassVar[int]
    TOKENIZER_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    TOOK_US_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    model: str
    lora_name: str
    resolved_by: str
    nearest_model: str
    prompt_tokens: int
    state: str
    reason: str
    pods: _containers.RepeatedCompositeFieldContainer[PodEntry]
    tokenizer: TokenizerUsed
    shards: Shards
    took_us: int
    def __init__(self, request_id: _Optional[str] = ..., model: _Optional[str] = ..., lora_name: _Optional[str] = ..., resolved_by: _Optional[str] = ..., nearest_model: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., state: _Optional[str] = ..., reason: _Optional[str] = ..., pods: _Optional[_Iterable[_Union[PodEntry, _Mapping]]] = ..., tokenizer: _Optional[_Union[TokenizerUsed, _Mapping]] = ..., shards: _Optional[_Union[Shards, _Mapping]] = ..., took_us: _Optional[int] = ...) -> None: ...

class PodEntry(_message.Message):
    __slots__ = ("pod", "dp_rank", "block_size", "matched_tokens", "reusable_tokens", "tiers", "prefix", "score", "state", "bound", "reason", "generation", "sequence", "lag_ms", "event_age_ms", "speculative_tokens")
    POD_FIELD_NUMBER: _ClassVar[int]
    DP_RANK_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    MATCHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    REUSABLE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TIERS_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    SCORE_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_FIELD_NUMBER: _ClassVar[int]
    EVENT_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    SPECULATIVE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    pod: str
    dp_rank: int
    block_size: int
    matched_tokens: int
    reusable_tokens: int
    tiers: TierTokens
    prefix: PrefixTokens
    score: float
    state: str
    bound: str
    reason: str
    generation: str
    sequence: int
    lag_ms: int
    event_age_ms: int
    speculative_tokens: int
    def __init__(self, pod: _Optional[str] = ..., dp_rank: _Optional[int] = ..., block_size: _Optional[int] = ..., matched_tokens: _Optional[int] = ..., reusable_tokens: _Optional[int] = ..., tiers: _Optional[_Union[TierTokens, _Mapping]] = ..., prefix: _Optional[_Union[PrefixTokens, _Mapping]] = ..., score: _Optional[float] = ..., state: _Optional[str] = ..., bound: _Optional[str] = ..., reason: _Optional[str] = ..., generation: _Optional[str] = ..., sequence: _Optional[int] = ..., lag_ms: _Optional[int] = ..., event_age_ms: _Optional[int] = ..., speculative_tokens: _Optional[int] = ...) -> None: ...

class TierTokens(_message.Message):
    __slots__ = ("gpu", "cpu", "storage", "remote", "unknown")
    GPU_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    REMOTE_FIELD_NUMBER: _ClassVar[int]
    UNKNOWN_FIELD_NUMBER: _ClassVar[int]
    gpu: int
    cpu: int
    storage: int
    remote: int
    unknown: int
    def __init__(self, gpu: _Optional[int] = ..., cpu: _Optional[int] = ..., storage: _Optional[int] = ..., remote: _Optional[int] = ..., unknown: _Optional[int] = ...) -> None: ...

class PrefixTokens(_message.Message):
    __slots__ = ("gpu", "cpu", "storage", "remote")
    GPU_FIELD_NUMBER: _ClassVar[int]
    CPU_FIELD_NUMBER: _ClassVar[int]
    STORAGE_FIELD_NUMBER: _ClassVar[int]
    REMOTE_FIELD_NUMBER: _ClassVar[int]
    gpu: int
    cpu: int
    storage: int
    remote: int
    def __init__(self, gpu: _Optional[int] = ..., cpu: _Optional[int] = ..., storage: _Optional[int] = ..., remote: _Optional[int] = ...) -> None: ...

class Shards(_message.Message):
    __slots__ = ("answered", "total")
    ANSWERED_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    answered: int
    total: int
    def __init__(self, answered: _Optional[int] = ..., total: _Optional[int] = ...) -> None: ...

class TokenizerUsed(_message.Message):
    __slots__ = ("source", "name", "tokens", "cached")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_FIELD_NUMBER: _ClassVar[int]
    source: str
    name: str
    tokens: int
    cached: bool
    def __init__(self, source: _Optional[str] = ..., name: _Optional[str] = ..., tokens: _Optional[int] = ..., cached: _Optional[bool] = ...) -> None: ...

class LookupResult(_message.Message):
    __slots__ = ("answer", "problem")
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    answer: LookupResponse
    problem: Problem
    def __init__(self, answer: _Optional[_Union[LookupResponse, _Mapping]] = ..., problem: _Optional[_Union[Problem, _Mapping]] = ...) -> None: ...

class LookupBatchRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[LookupRequest]
    def __init__(self, items: _Optional[_Iterable[_Union[LookupRequest, _Mapping]]] = ...) -> None: ...

class LookupBatchResponse(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[LookupResult]
    def __init__(self, items: _Optional[_Iterable[_Union[LookupResult, _Mapping]]] = ...) -> None: ...

class Problem(_message.Message):
    __slots__ = ("status", "code", "detail", "errors", "request_id")
    STATUS_FIELD_NUMBER: _ClassVar[int]
    CODE_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    ERRORS_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    status: int
    code: str
    detail: str
    errors: _containers.RepeatedCompositeFieldContainer[ProblemItem]
    request_id: str
    def __init__(self, status: _Optional[int] = ..., code: _Optional[str] = ..., detail: _Optional[str] = ..., errors: _Optional[_Iterable[_Union[ProblemItem, _Mapping]]] = ..., request_id: _Optional[str] = ...) -> None: ...

class ProblemItem(_message.Message):
    __slots__ = ("field", "rule", "got", "hint")
    FIELD_FIELD_NUMBER: _ClassVar[int]
    RULE_FIELD_NUMBER: _ClassVar[int]
    GOT_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    field: str
    rule: str
    got: str
    hint: str
    def __init__(self, field: _Optional[str] = ..., rule: _Optional[str] = ..., got: _Optional[str] = ..., hint: _Optional[str] = ...) -> None: ...

class RecommendRequest(_message.Message):
    __slots__ = ("question", "loads", "strategy", "weights", "session", "exclude")
    class LoadsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: PodLoad
        def __init__(self, key: _Optional[str] = ..., value: _Optional[_Union[PodLoad, _Mapping]] = ...) -> None: ...
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    LOADS_FIELD_NUMBER: _ClassVar[int]
    STRATEGY_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    SESSION_FIELD_NUMBER: _ClassVar[int]
    EXCLUDE_FIELD_NUMBER: _ClassVar[int]
    question: LookupRequest
    loads: _containers.MessageMap[str, PodLoad]
    strategy: str
    weights: TermWeights
    session: str
    exclude: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, question: _Optional[_Union[LookupRequest, _Mapping]] = ..., loads: _Optional[_Mapping[str, PodLoad]] = ..., strategy: _Optional[str] = ..., weights: _Optional[_Union[TermWeights, _Mapping]] = ..., session: _Optional[str] = ..., exclude: _Optional[_Iterable[str]] = ...) -> None: ...

class PodLoad(_message.Message):
    __slots__ = ("running", "waiting", "kv_usage")
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    KV_USAGE_FIELD_NUMBER: _ClassVar[int]
    running: float
    waiting: float
    kv_usage: float
    def __init__(self, running: _Optional[float] = ..., waiting: _Optional[float] = ..., kv_usage: _Optional[float] = ...) -> None: ...

class TermWeights(_message.Message):
    __slots__ = ("prefix", "load", "speculative")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    SPECULATIVE_FIELD_NUMBER: _ClassVar[int]
    prefix: float
    load: float
    speculative: float
    def __init__(self, prefix: _Optional[float] = ..., load: _Optional[float] = ..., speculative: _Optional[float] = ...) -> None: ...

class RecommendResponse(_message.Message):
    __slots__ = ("request_id", "state", "picks", "load", "decode")
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    PICKS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    DECODE_FIELD_NUMBER: _ClassVar[int]
    request_id: str
    state: str
    picks: _containers.RepeatedCompositeFieldContainer[RecommendedPod]
    load: LoadsUsed
    decode: DecodePicks
    def __init__(self, request_id: _Optional[str] = ..., state: _Optional[str] = ..., picks: _Optional[_Iterable[_Union[RecommendedPod, _Mapping]]] = ..., load: _Optional[_Union[LoadsUsed, _Mapping]] = ..., decode: _Optional[_Union[DecodePicks, _Mapping]] = ...) -> None: ...

class RecommendedPod(_message.Message):
    __slots__ = ("pod", "dp_rank", "total", "terms")
    POD_FIELD_NUMBER: _ClassVar[int]
    DP_RANK_FIELD_NUMBER: _ClassVar[int]
    TOTAL_FIELD_NUMBER: _ClassVar[int]
    TERMS_FIELD_NUMBER: _ClassVar[int]
    pod: str
    dp_rank: int
    total: float
    terms: PickTerms
    def __init__(self, pod: _Optional[str] = ..., dp_rank: _Optional[int] = ..., total: _Optional[float] = ..., terms: _Optional[_Union[PickTerms, _Mapping]] = ...) -> None: ...

class PickTerms(_message.Message):
    __slots__ = ("prefix", "load", "speculative", "penalty")
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    SPECULATIVE_FIELD_NUMBER: _ClassVar[int]
    PENALTY_FIELD_NUMBER: _ClassVar[int]
    prefix: float
    load: float
    speculative: float
    penalty: float
    def __init__(self, prefix: _Optional[float] = ..., load: _Optional[float] = ..., speculative: _Optional[float] = ..., penalty: _Optional[float] = ...) -> None: ...

class LoadsUsed(_message.Message):
    __slots__ = ("source", "age_ms")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    source: str
    age_ms: int
    def __init__(self, source: _Optional[str] = ..., age_ms: _Optional[int] = ...) -> None: ...

class DecodePicks(_message.Message):
    __slots__ = ("picks",)
    PICKS_FIELD_NUMBER: _ClassVar[int]
    picks: _containers.RepeatedCompositeFieldContainer[RecommendedPod]
    def __init__(self, picks: _Optional[_Iterable[_Union[RecommendedPod, _Mapping]]] = ...) -> None: ...

class ReportRoutedRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[RoutedReport]
    def __init__(self, items: _Optional[_Iterable[_Union[RoutedReport, _Mapping]]] = ...) -> None: ...

class RoutedReport(_message.Message):
    __slots__ = ("pod", "dp_rank", "request_id", "model", "token_ids", "token_bytes", "block_hashes", "block_size", "scheme", "of", "lora_name", "cache_salt", "tenant", "mm_items")
    POD_FIELD_NUMBER: _ClassVar[int]
    DP_RANK_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HASHES_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    SCHEME_FIELD_NUMBER: _ClassVar[int]
    OF_FIELD_NUMBER: _ClassVar[int]
    LORA_NAME_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MM_ITEMS_FIELD_NUMBER: _ClassVar[int]
    pod: str
    dp_rank: int
    request_id: str
    model: str
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    token_bytes: bytes
    block_hashes: _containers.RepeatedScalarFieldContainer[int]
    block_size: int
    scheme: str
    of: str
    lora_name: str
    cache_salt: str
    tenant: str
    mm_items: _containers.RepeatedCompositeFieldContainer[MmItem]
    def __init__(self, pod: _Optional[str] = ..., dp_rank: _Optional[int] = ..., request_id: _Optional[str] = ..., model: _Optional[str] = ..., token_ids: _Optional[_Iterable[int]] = ..., token_bytes: _Optional[bytes] = ..., block_hashes: _Optional[_Iterable[int]] = ..., block_size: _Optional[int] = ..., scheme: _Optional[str] = ..., of: _Optional[str] = ..., lora_name: _Optional[str] = ..., cache_salt: _Optional[str] = ..., tenant: _Optional[str] = ..., mm_items: _Optional[_Iterable[_Union[MmItem, _Mapping]]] = ...) -> None: ...

class ReportRoutedResponse(_message.Message):
    __slots__ = ("accepted", "refused", "results")
    class ResultsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    accepted: int
    refused: _containers.RepeatedCompositeFieldContainer[RefusedReport]
    results: _containers.ScalarMap[str, int]
    def __init__(self, accepted: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[RefusedReport, _Mapping]]] = ..., results: _Optional[_Mapping[str, int]] = ...) -> None: ...

class ReuseReport(_message.Message):
    __slots__ = ("pod", "dp_rank", "request_id", "prompt_tokens", "cached_tokens", "ok", "model", "lora_name", "cache_salt", "tenant", "mm_items", "token_ids", "token_bytes", "block_hashes", "block_size", "scheme")
    POD_FIELD_NUMBER: _ClassVar[int]
    DP_RANK_FIELD_NUMBER: _ClassVar[int]
    REQUEST_ID_FIELD_NUMBER: _ClassVar[int]
    PROMPT_TOKENS_FIELD_NUMBER: _ClassVar[int]
    CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    OK_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LORA_NAME_FIELD_NUMBER: _ClassVar[int]
    CACHE_SALT_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    MM_ITEMS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    BLOCK_HASHES_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    SCHEME_FIELD_NUMBER: _ClassVar[int]
    pod: str
    dp_rank: int
    request_id: str
    prompt_tokens: int
    cached_tokens: int
    ok: bool
    model: str
    lora_name: str
    cache_salt: str
    tenant: str
    mm_items: _containers.RepeatedCompositeFieldContainer[MmItem]
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    token_bytes: bytes
    block_hashes: _containers.RepeatedScalarFieldContainer[int]
    block_size: int
    scheme: str
    def __init__(self, pod: _Optional[str] = ..., dp_rank: _Optional[int] = ..., request_id: _Optional[str] = ..., prompt_tokens: _Optional[int] = ..., cached_tokens: _Optional[int] = ..., ok: _Optional[bool] = ..., model: _Optional[str] = ..., lora_name: _Optional[str] = ..., cache_salt: _Optional[str] = ..., tenant: _Optional[str] = ..., mm_items: _Optional[_Iterable[_Union[MmItem, _Mapping]]] = ..., token_ids: _Optional[_Iterable[int]] = ..., token_bytes: _Optional[bytes] = ..., block_hashes: _Optional[_Iterable[int]] = ..., block_size: _Optional[int] = ..., scheme: _Optional[str] = ...) -> None: ...

class ReportReuseRequest(_message.Message):
    __slots__ = ("items",)
    ITEMS_FIELD_NUMBER: _ClassVar[int]
    items: _containers.RepeatedCompositeFieldContainer[ReuseReport]
    def __init__(self, items: _Optional[_Iterable[_Union[ReuseReport, _Mapping]]] = ...) -> None: ...

class ReportReuseResponse(_message.Message):
    __slots__ = ("accepted", "joined", "refused", "results")
    class ResultsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    JOINED_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    RESULTS_FIELD_NUMBER: _ClassVar[int]
    accepted: int
    joined: int
    refused: _containers.RepeatedCompositeFieldContainer[RefusedReport]
    results: _containers.ScalarMap[str, int]
    def __init__(self, accepted: _Optional[int] = ..., joined: _Optional[int] = ..., refused: _Optional[_Iterable[_Union[RefusedReport, _Mapping]]] = ..., results: _Optional[_Mapping[str, int]] = ...) -> None: ...

class RefusedReport(_message.Message):
    __slots__ = ("index", "problem")
    INDEX_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    index: int
    problem: Problem
    def __init__(self, index: _Optional[int] = ..., problem: _Optional[_Union[Problem, _Mapping]] = ...) -> None: ...

class ListSourcesRequest(_message.Message):
    __slots__ = ("state", "model", "limit", "after")
    STATE_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    state: str
    model: str
    limit: int
    after: str
    def __init__(self, state: _Optional[str] = ..., model: _Optional[str] = ..., limit: _Optional[int] = ..., after: _Optional[str] = ...) -> None: ...

class ListSourcesResponse(_message.Message):
    __slots__ = ("sources", "next")
    SOURCES_FIELD_NUMBER: _ClassVar[int]
    NEXT_FIELD_NUMBER: _ClassVar[int]
    sources: _containers.RepeatedCompositeFieldContainer[Source]
    next: str
    def __init__(self, sources: _Optional[_Iterable[_Union[Source, _Mapping]]] = ..., next: _Optional[str] = ...) -> None: ...

class Source(_message.Message):
    __slots__ = ("pod", "dp_rank", "state", "since", "why", "bound", "generation", "sequence", "lag_ms", "event_age_ms", "counters", "blocks", "copies", "blocks_total", "owner", "origin", "endpoint", "replay_endpoint", "model", "lora_name", "engine", "block_size", "groups", "role", "tenant", "address", "aliases", "labels", "cordoned", "warnings", "load", "ready")
    class CountersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class BlocksEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class LabelsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    POD_FIELD_NUMBER: _ClassVar[int]
    DP_RANK_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    SINCE_FIELD_NUMBER: _ClassVar[int]
    WHY_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    LAG_MS_FIELD_NUMBER: _ClassVar[int]
    EVENT_AGE_MS_FIELD_NUMBER: _ClassVar[int]
    COUNTERS_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    COPIES_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_TOTAL_FIELD_NUMBER: _ClassVar[int]
    OWNER_FIELD_NUMBER: _ClassVar[int]
    ORIGIN_FIELD_NUMBER: _ClassVar[int]
    ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    REPLAY_ENDPOINT_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    LORA_NAME_FIELD_NUMBER: _ClassVar[int]
    ENGINE_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    GROUPS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ALIASES_FIELD_NUMBER: _ClassVar[int]
    LABELS_FIELD_NUMBER: _ClassVar[int]
    CORDONED_FIELD_NUMBER: _ClassVar[int]
    WARNINGS_FIELD_NUMBER: _ClassVar[int]
    LOAD_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    pod: str
    dp_rank: int
    state: str
    since: str
    why: str
    bound: str
    generation: str
    sequence: int
    lag_ms: int
    event_age_ms: int
    counters: _containers.ScalarMap[str, int]
    blocks: _containers.ScalarMap[str, int]
    copies: int
    blocks_total: int
    owner: str
    origin: str
    endpoint: str
    replay_endpoint: str
    model: str
    lora_name: str
    engine: str
    block_size: int
    groups: _containers.RepeatedCompositeFieldContainer[CacheGroup]
    role: str
    tenant: str
    address: str
    aliases: _containers.RepeatedScalarFieldContainer[str]
    labels: _containers.ScalarMap[str, str]
    cordoned: bool
    warnings: _containers.RepeatedScalarFieldContainer[str]
    load: SourceLoad
    ready: bool
    def __init__(self, pod: _Optional[str] = ..., dp_rank: _Optional[int] = ..., state: _Optional[str] = ..., since: _Optional[str] = ..., why: _Optional[str] = ..., bound: _Optional[str] = ..., generation: _Optional[str] = ..., sequence: _Optional[int] = ..., lag_ms: _Optional[int] = ..., event_age_ms: _Optional[int] = ..., counters: _Optional[_Mapping[str, int]] = ..., blocks: _Optional[_Mapping[str, int]] = ..., copies: _Optional[int] = ..., blocks_total: _Optional[int] = ..., owner: _Optional[str] = ..., origin: _Optional[str] = ..., endpoint: _Optional[str] = ..., replay_endpoint: _Optional[str] = ..., model: _Optional[str] = ..., lora_name: _Optional[str] = ..., engine: _Optional[str] = ..., block_size: _Optional[int] = ..., groups: _Optional[_Iterable[_Union[CacheGroup, _Mapping]]] = ..., role: _Optional[str] = ..., tenant: _Optional[str] = ..., address: _Optional[str] = ..., aliases: _Optional[_Iterable[str]] = ..., labels: _Optional[_Mapping[str, str]] = ..., cordoned: _Optional[bool] = ..., warnings: _Optional[_Iterable[str]] = ..., load: _Optional[_Union[SourceLoad, _Mapping]] = ..., ready: _Optional[bool] = ...) -> None: ...

class SourceLoad(_message.Message):
    __slots__ = ("source", "running", "waiting", "kv_usage", "unseen", "age_ms")
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    RUNNING_FIELD_NUMBER: _ClassVar[int]
    WAITING_FIELD_NUMBER: _ClassVar[int]
    KV_USAGE_FIELD_NUMBER: _ClassVar[int]
    UNSEEN_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    source: str
    running: float
    waiting: float
    kv_usage: float
    unseen: int
    age_ms: int
    def __init__(self, source: _Optional[str] = ..., running: _Optional[float] = ..., waiting: _Optional[float] = ..., kv_usage: _Optional[float] = ..., unseen: _Optional[int] = ..., age_ms: _Optional[int] = ...) -> None: ...

class CacheGroup(_message.Message):
    __slots__ = ("group", "kind", "window")
    GROUP_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    WINDOW_FIELD_NUMBER: _ClassVar[int]
    group: int
    kind: str
    window: int
    def __init__(self, group: _Optional[int] = ..., kind: _Optional[str] = ..., window: _Optional[int] = ...) -> None: ...

class WatchSourcesRequest(_message.Message):
    __slots__ = ("model", "heartbeat_ms")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_MS_FIELD_NUMBER: _ClassVar[int]
    model: str
    heartbeat_ms: int
    def __init__(self, model: _Optional[str] = ..., heartbeat_ms: _Optional[int] = ...) -> None: ...

class WatchSourcesResponse(_message.Message):
    __slots__ = ("event", "source")
    EVENT_FIELD_NUMBER: _ClassVar[int]
    SOURCE_FIELD_NUMBER: _ClassVar[int]
    event: str
    source: SourceStatus
    def __init__(self, event: _Optional[str] = ..., source: _Optional[_Union[SourceStatus, _Mapping]] = ...) -> None: ...

class SourceStatus(_message.Message):
    __slots__ = ("pod", "dp_rank", "state", "bound", "generation", "cordoned", "model", "address", "role", "tenant", "ready")
    POD_FIELD_NUMBER: _ClassVar[int]
    DP_RANK_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    BOUND_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CORDONED_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    TENANT_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    pod: str
    dp_rank: int
    state: str
    bound: str
    generation: str
    cordoned: bool
    model: str
    address: str
    role: str
    tenant: str
    ready: bool
    def __init__(self, pod: _Optional[str] = ..., dp_rank: _Optional[int] = ..., state: _Optional[str] = ..., bound: _Optional[str] = ..., generation: _Optional[str] = ..., cordoned: _Optional[bool] = ..., model: _Optional[str] = ..., address: _Optional[str] = ..., role: _Optional[str] = ..., tenant: _Optional[str] = ..., ready: _Optional[bool] = ...) -> None: ...
