"""What the help of each command says besides its flags. Text only."""

from __future__ import annotations

from typing import Final

OVERVIEW: Final = """\
Tells LLM routers which engine already holds how much of a prompt's prefix, and how far that answer can be trusted.

first steps:
  kvindexer demo                      three engines, a service and lookups, all on this machine
  kvindexer serve --source 10.0.0.1:8000=tcp://10.0.0.1:5557,model=llama
  kvindexer sources                   what a running service listens to
  kvindexer lookup --tokens ids.txt   who holds how much of this prompt
  kvindexer doctor                    what is wrong with a deployment, and what to do
  kvindexer explain --tokens ids.txt  why they hold no more of it, and what to do

exit codes:
  0    done; for questions: answered, whatever the answer
  1    the service cannot be reached or refused, or something failed on the way
  2    what was typed or set is wrong, or an address cannot be had (a port in use)
  3    compare: there was nothing to compare; doctor: the service cannot be reached
  130  Ctrl-C before it was done; serve and demo end with 0
"""

SERVE: Final = """\
examples:
  one engine, the pod named as the router calls it:
    kvindexer serve --source 10.0.0.1:8000=tcp://10.0.0.1:5557,model=llama
  with replay, so that losses heal (vLLM's replay_endpoint; off there by default):
    kvindexer serve --source 10.0.0.1:8000=tcp://10.0.0.1:5557,replay=tcp://10.0.0.1:6557,model=llama
  eight data-parallel ranks at ports 5557..5564 and 6557..6564:
    kvindexer serve --source pod-a=tcp://10.0.0.1:5557,replay=tcp://10.0.0.1:6557,ranks=0-7
  engines that connect to us; pods appear by their topic kv@POD@MODEL:
    kvindexer serve --source-bind 'tcp://*:5557'
  with the engine's capacity (vLLM logs it as num_gpu_blocks), which tells blocks that are gone from blocks that are
  held once messages are lost for good; blocks=N, or blocks_total in the file and in POST /v1/sources:
    kvindexer serve --source 10.0.0.1:8000=tcp://10.0.0.1:5557,model=llama,blocks=20000
    sources: [{pod: "10.0.0.1:8000", endpoint: "tcp://10.0.0.1:5557", model: llama, blocks_total: 20000}]
  restart-safe: what is known is kept in Redis or Valkey (7.0 or newer, maxmemory-policy noeviction), and is there
  again after a restart; a password in the environment is seen by fewer than one in the command line:
    KVINDEXER_REDIS__URL=redis://user:password@redis.example:6379 kvindexer serve --source ...
  several replicas on one store, as many as wanted: each applies its part of the engines, all answer for all of them:
    kvindexer serve --redis-url redis://redis.example:6379 --port 8082 --source ...
  a further replica that only answers: it subscribes to no engine and follows what the others write:
    kvindexer serve --roles lookup --redis-url redis://redis.example:6379
  the same and the endpoint picker for Envoy, at port 9002:
    kvindexer serve --roles collect,lookup,epp --source 10.0.0.1:8000=tcp://10.0.0.1:5557,model=llama
  beside a gateway, on a Unix socket alone, with the engines of one model:
    kvindexer serve --roles lookup --follow llama --uds /run/kvindexer/index.sock --port off --grpc-port off
  addresses of a store: rediss:// is TLS (?ca=FILE), unix:///PATH a socket, redis+cluster://HOST:PORT,HOST:PORT a
  cluster, redis+sentinel://HOST:PORT,HOST:PORT/SERVICE what sentinels watch
  from a file, one value changed by the environment, one by a flag:
    KVINDEXER_STALENESS__SCORE_TTL_S=30 kvindexer serve --config kvindexer.yaml --port 9000

Engines that announce nothing (models.approximate) have no endpoint to name here: they stand in the file of sources,
or are posted to /v1/sources.
NAME ends at the first =tcp:// or =ipc:// and may contain : . / [ ]. Settings: file < environment < flags;
`kvindexer config` prints what they come to.
"""

DEMO: Final = """\
Nothing is kept, and nothing of the environment or of files changes it. Ctrl-C ends it; the exit code is 1 where an
answer differed from what the engines say themselves.

examples:
  kvindexer demo                                       at http://127.0.0.1:8080
  kvindexer demo --port 0 --grpc-port off --seconds 20 on a free port, without gRPC, for a while
  kvindexer demo --cluster --grpc-port 50051           three replicas, gRPC at 50051, 50052, 50053
"""

REPLAY: Final = """\
Each engine of the recording publishes on its own port, and answers replay on another, exactly as vLLM does.

`demo` is the recording that the demo plays; further ones lie in tests/golden/traces of the source tree. They
are short: at --speed 1 demo and basic-sameseed take 1 s, basic 1.5 s, clear 5 s, eviction 7 s. --speed 2 takes half of
that, --speed 0.1 ten times as long, which is time to watch; --speed max publishes as fast as it can.

examples:
  kvindexer replay demo                            engines at 5557, 5558, ..., replay at 6557, 6558, ...
  kvindexer replay demo --wait-subscribers --speed max
  kvindexer replay tests/golden/traces/eviction.kvt.gz --no-replay --loss 0.01   what a lossy network does
"""

CALLERS: Final = """\
The entry goes to stdout and the token to stderr, once: nothing keeps it, and the file that the service reads holds its
SHA-256 alone. A token with no file to name it is worth nothing; one whose entry is taken out is refused within seconds,
without a restart.

examples:
  install -m 600 /dev/null tokens.yaml
  kvindexer token --name router-a --scope lookup --scope report >> tokens.yaml
  kvindexer token --name ops --scope lookup --scope admin >> tokens.yaml
  kvindexer token --name team-b --tenant b >> tokens.yaml      sees and asks about the engines of tenant b alone
  KVINDEXER_AUTH__TOKENS_FILE=tokens.yaml kvindexer serve ...
  KVINDEXER_TOKEN=kvi_... kvindexer sources                    the environment is seen by fewer than a command line

scopes:
  lookup   ask: lookups, batches, hashes, lists of sources, histories
  report   tell what was routed (/v1/routed) and reused (/v1/feedback)
  admin    change sources, look into blocks, drain replicas, read the settings; asks nothing without lookup
"""

LOOKUP: Final = """\
examples:
  kvindexer lookup --tokens ids.txt --model llama
  echo '[1, 2, 3]' | kvindexer lookup --tokens - --json
  kvindexer lookup --tokens ids.u32 --binary --pods 10.0.0.1:8000,10.0.0.2:8000
  kvindexer lookup --prompt "The quick brown fox" --model llama
  kvindexer lookup --messages @request.json      a chat request as it goes to the engine
"""

EXPLAIN: Final = """\
A line an engine, best first: what it holds, the first block that is missing, and the code of what decides. Below, in
words: when and why it went, or why it was never there, what to do, and what else should be known of the engine.

examples:
  kvindexer explain --tokens ids.txt --model llama
  kvindexer explain --tokens ids.txt --pod 10.0.0.1:8000
  kvindexer explain --messages @request.json --json     with times, hashes and numbers for programs
"""

SOURCES: Final = """\
examples:
  kvindexer sources
  kvindexer sources list --state down
  kvindexer sources add 10.0.0.1:8000=tcp://10.0.0.1:5557,model=llama
  kvindexer sources cordon 10.0.0.1:8000      listed with score 0 until uncordon
  kvindexer sources clear 10.0.0.1:8000       forget what it holds; what it announces after counts again
  kvindexer sources history 10.0.0.1:8000     gaps, restarts, clears, changes of owner: when, and why
"""

REPORT: Final = """\
examples:
  kvindexer report staleness
  kvindexer report staleness --state suspect
  kvindexer report staleness --csv > staleness.csv
  kvindexer report consistency
  kvindexer report consistency --window 24h
"""

REPORT_CONSISTENCY: Final = """\
Routers report to POST /v1/feedback what their engines really reused; each report is joined to the lookup of the same
request, as far as the replica that is asked has answered it.

columns:
  samples    answers that were compared
  exact      share of them that were right to the token
  trend      the share of the last hour less that of the last day
  said       tokens that were said to be reusable; `reused`: that were
  false      said to be reusable, and computed all the same
  lost       reused, and not known
  regret     how many more the best source was said to reuse than the one that was chosen
  unjoined   reports of which no answer is known: they are in no other column

Below: why answers were wrong, as far as that is known. --json and --csv have the rest: all windows, and how old what
was known was.

examples:
  kvindexer report consistency --window 10m --model llama
  kvindexer report consistency --csv > consistency.csv
"""

REPORT_STALENESS: Final = """\
columns:
  lag ms     age of the newest proof that nothing is missing; on an idle engine with a replay endpoint it climbs to
             events.probe_interval_s and falls with each probe
  p50, p99   what half, and 99 of a hundred, of the last ten minutes' seconds did not exceed
  event ms   since the engine's last message
  gaps       noticed ever since it was registered; `unhealed` of them were lost for good
  replays    conversations with its replay endpoint, of any result
  owner      the replica that applies its events, where there are several: it has the counts, another one shows `-`

Below: why a source is not live and exact, and what should be looked at. --json and --csv have the rest: other windows,
orphans, clears, unknown events and removals, and what was announced and taken back in each memory tier.

examples:
  kvindexer report staleness --pod 10.0.0.1:8000 --json
  kvindexer report staleness --csv > staleness.csv
"""

PARTITIONS: Final = """\
The store is divided into partitions (redis.partitions). Each has one owner, which applies its engines' events and
writes; the others follow what it writes, and answer from that. The standby listens to the same engines, too, so as to
take over without a loss.

roles of the replica that is asked:
  owner      it applies and writes
  standby    it follows, and listens along: `kept bytes` of messages that the owner has not written yet
  follower   it follows
  none       nothing of it is here yet

states:
  waiting    nothing of it is here: nobody owns it yet, another may still own it, or the store does not answer
  loading    it is being read from the store
  live       written or followed entry by entry
  asserting  the store lost something of it: its maps are being written anew
  stale      the store, or the owner, was not heard of for a while; answers come from what is in memory

examples:
  kvindexer partitions
  kvindexer partitions --watch
  kvindexer partitions --url http://replica-2:8080 --json
"""

DOCTOR: Final = """\
Without --config, --source and --redis-url: the service at --url is asked for its sources, reports, replicas and, where
the token is an admin's, settings; then their endpoints, addresses and store are looked at from here. With any of them:
what file, environment and flags name is looked at, also before a service runs; the service only where --url (or
KVINDEXER_URL) names it.

outcomes:
  ok        looked at, and well
  warning   it works, and something is weaker than it could be
  problem   answers are wrong or missing, or will be
  unknown   it cannot be known: from here, now (an idle engine says nothing), or by anybody

Nothing is changed anywhere. An engine's event port gets one subscriber more for --listen-s; its replay port is asked
whether it answers, and how far back it reaches, as a service asks when it starts; its address is asked for /metrics,
/version, /v1/models and /kv_event_sources; the store for INFO and what the namespace agrees on. An engine that works
while doctor listens can be told more of: send it a request of several blocks meanwhile. Passwords are never shown.

exit codes:
  0    no problem
  1    at least one problem
  2    what was typed or set is wrong
  3    the service cannot be reached
  130  Ctrl-C (what was looked at is shown)

examples:
  kvindexer doctor
  kvindexer doctor --listen-s 10 --pods 10.0.0.1:8000
  kvindexer doctor --config kvindexer.yaml                            before the service is started
  kvindexer doctor --source 10.0.0.1:8000=tcp://10.0.0.1:5557,replay=tcp://10.0.0.1:6557,address=10.0.0.1:8000
  kvindexer doctor --url http://replica-2:8080 --no-probe --json      what the service knows by itself, for programs
"""

PLAN: Final = """\
The constants are measured (loadtest/RESULTS.md; --json has each with where it comes from), on other machines than
yours: CPU figures scale with the speed of a core. The formulas, beside every figure:

  memory of a replica  idle + sources × KiB + margin × (different blocks × bytes of the index
                       + blocks of the sources it owns × bytes of the reverse map)
  different blocks     engines × blocks × (1 - shared / 2)
  CPU of a replica     blocks/s × (part owned × us to apply and write + part followed × us to follow)
                       + lookups/s ÷ replicas × us a lookup
  replicas             the fewest, from two, that need 0.6 of a core each, and 0.9 while one is gone
  store                margin × (engines × blocks × bytes + partitions × journal)
  journal              4 times what is written while a replica loads all maps, 16 MiB at least

One replica uses one core for events and lookups. Every replica follows all events, so beyond some 80,000 blocks a
second more of them do not help: the fleet is split into several deployments then, and figures are of each. What an
engine announces in one step is a batch: large ones cost less a block (--batch-blocks). The exit code is 1 where it
cannot be done with the --replicas given, or at all.

examples:
  kvindexer plan --engines 200 --blocks 50000 --rate 100 --lookups 2000
  kvindexer plan --engines 200 --blocks 50000 --rate 1000
  kvindexer plan --engines 8 --blocks 20000 --rate 500 --no-store
  kvindexer plan --engines 1000 --blocks 30000 --rate 20 --replicas 4 --shared 0.6 --json
"""

DRAIN: Final = """\
Before a replica is stopped, or its machine is: one after the other its partitions go to replicas that have followed
them and listen to their engines already. The drained replica goes on following, and answering. Any can be asked.

The drain ends with the process: a replica that is started again owns its part. It is refused where nobody else could
take over. Ctrl-C ends the waiting, not the drain.

examples:
  kvindexer drain replica-2
  kvindexer drain replica-2 --timeout 60 && kubectl delete pod replica-2
  kvindexer drain replica-2 --undo
"""

COMPARE: Final = """\
For two replicas, two versions, or another service before and after a change of URL: what a router would be told by
either. What differs is asked again once; what then agrees was a matter of who had read on.

reasons:
  a: REASON, b: REASON   that side says itself why its number may be less or more: stale, syncing, bound lower, ...
  a: behind, b: behind   it has applied less of the engine's messages, and is exact for what it has applied
  another generation     one of them has not seen a restart yet, or one of them was started later
  b: pod not known       (or a:) nobody is registered there under this name
  unexplained            both are exact, at the same message, and still differ

exit codes:
  0    all agree
  1    something differs, or a service could not be asked
  2    what was typed is wrong
  3    nobody holds anything of the prompts on either side: that they agree says nothing (is --model right?)
  130  Ctrl-C (what was compared is shown)

examples:
  kvindexer compare http://replica-1:8080 http://replica-2:8080 --prompts prompts.jsonl --model llama
  kvindexer compare http://127.0.0.1:8080 http://127.0.0.1:8090 --prompts demo --model tiny-llama --face dynamo
  kvindexer compare unix:/run/kvi.sock https://kvi.example --ca ca.pem --prompts - --json < prompts.jsonl
"""

REDIS: Final = """\
examples:
  kvindexer redis reset --redis-url redis://127.0.0.1:6379
"""

REDIS_RESET: Final = """\
What goes: all that is known of engines, and the sources that callers registered; those of flags and files come back
with the next start. What for: another redis.partitions or auth.hash_secret, with which a replica does not start on what
others laid out; or a namespace that nobody uses any more: its registry, for one, never expires.

Stop the replicas of the namespace first. It is refused while one was seen within 15 seconds or holds a lease; --force
removes all the same, and whoever still runs writes what it knows anew. Other namespaces are not touched. Ctrl-C leaves
the rest where it is: run it again.

The store, namespace and password come from flags, file and environment, as for serve (KVINDEXER_REDIS__URL).

examples:
  kvindexer redis reset --redis-url redis://127.0.0.1:6379
  kvindexer redis reset --config kvindexer.yaml --namespace staging --yes
"""

CONFIG: Final = """\
environment: KVINDEXER_SECTION__KEY=value, the value written as in YAML; deeper keys with __ again:
  KVINDEXER_STALENESS__SCORE_TTL_S=30
  KVINDEXER_STALENESS__ENTRY_TTL_S__STORAGE=off
  KVINDEXER_SOURCES   sources as --source takes them, with blanks or line ends between them:
    KVINDEXER_SOURCES="a=tcp://10.0.0.1:5557,model=llama b=tcp://10.0.0.2:5557,model=llama"
  KVINDEXER_ROLES     as --roles takes them: KVINDEXER_ROLES=lookup

Settings: file < environment < flags. Nothing is connected to: of a store only the form of its address is checked,
serve says whether it is there. Without --check, what serve would refuse is a warning on stderr.
"""
