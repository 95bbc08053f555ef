// A model spread over ranks gives what one rank gives: ids within the guard of golden files for tensor parallelism, the
// same bits for pipelines and with a fixed number of parts.
#include <doctest/doctest.h>

#include <algorithm>
#include <string>

#include "io/json.h"
#include "kernels/ops.h"
#include "tests/support/thread_replica.h"

namespace tokenmill {
namespace {

constexpr double kGapGuard = 5e-4;  // below this top-2 gap two float32 sums in another order may choose differently

std::string model_dir(const std::string& name) { return std::string(TM_TEST_DATA) + "/models/" + name; }

std::vector<int32_t> ids_of(const io::JsonValue& list) {
  std::vector<int32_t> out;
  for (const io::JsonValue& v : list.items()) out.push_back(static_cast<int32_t>(v.as_int64()));
  return out;
}

Request greedy_request(int64_t id, std::vector<int32_t> prompt, int64_t num_tokens) {
  Request request{.request_id = id, .prompt_token_ids = std::move(prompt)};
  request.sampling.temperature = 0;
  request.sampling.max_tokens = num_tokens;
  request.sampling.ignore_eos = true;
  return request;
}

void check_golden(const std::string& name, const ModelGrid& grid) {
  CAPTURE(name);
  CAPTURE(grid.tp_size);
  CAPTURE(grid.pp_size);
  const io::JsonValue golden = io::parse_json_file(std::string(TM_TEST_DATA) + "/golden/" + name + ".json");
  const std::vector<io::JsonValue>& cases = golden.at("cases").items();
  std::vector<Request> requests;
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto num_tokens = static_cast<int64_t>(cases[i].at("output_ids").items().size());
    requests.push_back(greedy_request(static_cast<int64_t>(i), ids_of(cases[i].at("prompt_ids")), num_tokens));
  }
  const test::ThreadReplicaRun run = test::run_thread_replica({.model = model_dir(name), .grid = grid}, requests);
  int64_t num_judged = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    CAPTURE(i);
    const std::vector<int32_t> want = ids_of(cases[i].at("output_ids"));
    REQUIRE(run.outputs[i].outputs.size() == 1);
    const std::vector<int32_t>& got = run.outputs[i].outputs[0].token_ids;
    REQUIRE(got.size() == want.size());
    for (size_t t = 0; t < want.size() && cases[i].at("gaps").items()[t].as_double() >= kGapGuard; ++t, ++num_judged)
      REQUIRE_MESSAGE(got[t] == want[t], "token ", t);
  }
  CHECK(num_judged > static_cast<int64_t>(cases.size()) * 40);
}

TEST_CASE("greedy ids of every tensor-parallel size equal transformers' in float32") {
  for (const int tp_size : {1, 2, 4, 8, 24}) check_golden("tiny-spread8", {.tp_size = tp_size});
  for (const int tp_size : {3, 6, 12}) check_golden("tiny-spread3", {.tp_size = tp_size});
  for (const int tp_size : {2, 4, 8}) check_golden("tiny-vocab259", {.tp_size = tp_size});
}

TEST_CASE("greedy ids of pipelines, alone and with tensor parallelism, equal transformers' in float32") {
  for (const int pp_size : {2, 3, 4}) check_golden("tiny-spread8", {.pp_size = pp_size});
  check_golden("tiny-spread8", {.tp_size = 2, .pp_size = 3});
  check_golden("tiny-spread3", {.tp_size = 3, .pp_size = 2});
  check_golden("tiny-vocab259", {.tp_size = 4, .pp_size = 2});
  check_golden("tiny-mistral", {.tp_size = 2, .pp_size = 2});  // a sliding window
}

/// Rows of every kind: greedy and random, penalties, several samples, logprobs, scored prompts, a shared beginning.
std::vector<Request> mixed_requests() {
  std::vector<Request> requests;
  for (int64_t i = 0; i < 10; ++i) {
    std::vector<int32_t> prompt;
    for (int64_t t = 0; t < 5 + 13 * i; ++t) prompt.push_back(static_cast<int32_t>(4 + (t * t + (t < 32 ? 0 : i)) % 250));
    Request request = greedy_request(i, prompt, 12 + i);
    request.random_key = 77 + static_cast<uint64_t>(i);
    SamplingParams& sampling = request.sampling;
    if (i % 2 == 1) sampling.temperature = 0.9;
    if (i % 3 == 1) sampling.top_k = 12;
    if (i % 4 == 1) sampling.top_p = 0.8;
    if (i % 5 == 2) sampling.repetition_penalty = 1.3, sampling.presence_penalty = 0.4;
    if (i % 5 == 3) sampling.n = 3, sampling.temperature = 1;
    if (i % 4 == 2) sampling.logprobs = 3;
    if (i == 6) sampling.prompt_logprobs = 2;
    requests.push_back(std::move(request));
  }
  return requests;
}

/// Behind rows that end at their first token, so that those after them are expected to be short, too.
std::vector<Request> requests_that_preempt() {
  std::vector<Request> requests;
  for (int64_t i = 0; i < 24; ++i) {
    Request& request = requests.emplace_back(greedy_request(i, {7, 8, 9}, 60));
    request.sampling.allowed_token_ids = {5};
    request.sampling.stop_token_ids = {5};
  }
  for (Request& request : mixed_requests()) {
    request.request_id += 24;
    request.sampling.max_tokens = 60;
    requests.push_back(std::move(request));
  }
  return requests;
}

void check_same_bits(const test::ThreadReplicaRun& want, const test::ThreadReplicaRun& got) {
  REQUIRE(got.outputs.size() == want.outputs.size());
  for (size_t i = 0; i < want.outputs.size(); ++i) {
    CAPTURE(i);
    const RequestOutput &a = want.outputs[i], &b = got.outputs[i];
    REQUIRE(!a.error);
    REQUIRE(!b.error);
    REQUIRE(a.outputs.size() == b.outputs.size());
    for (size_t s = 0; s < a.outputs.size(); ++s) {
      REQUIRE(a.outputs[s].token_ids == b.outputs[s].token_ids);
      REQUIRE(a.outputs[s].cumulative_logprob == b.outputs[s].cumulative_logprob);
      REQUIRE(a.outputs[s].logprobs == b.outputs[s].logprobs);
    }
    REQUIRE(a.prompt_logprobs == b.prompt_logprobs);
  }
}

TEST_CASE("a pipeline gives the bits of one rank, whatever its stages, chunks and preemptions") {
  const std::vector<Request> requests = requests_that_preempt();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    CAPTURE(dtype);
    test::ThreadReplicaOptions options{.model = model_dir("tiny-spread8"), .dtype = dtype};
    const test::ThreadReplicaRun whole = run_thread_replica(options, requests);
    for (const int pp_size : {2, 3, 4}) {
      CAPTURE(pp_size);
      options.grid.pp_size = pp_size;
      options.max_num_seqs = 3 + pp_size;
      options.max_num_batched_tokens = 32;
      options.num_blocks = 16;  // the longest row needs 12
      const test::ThreadReplicaRun run = run_thread_replica(options, requests);
      check_same_bits(whole, run);
      CHECK(run.num_preemptions > 0);
    }
    options.grid.pp_size = 2;
    options.stages = {{0, 4}, {4, 5}};
    check_same_bits(whole, run_thread_replica(options, requests));
  }
}

TEST_CASE("with a fixed number of parts every tensor-parallel size gives the same bits") {
  const std::vector<Request> requests = mixed_requests();
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    CAPTURE(dtype);
    test::ThreadReplicaOptions options{.model = model_dir("tiny-spread8"),
                                       .grid = {.tp_size = 1, .pp_size = 1, .invariant_parts = 4},
                                       .dtype = dtype};
    const test::ThreadReplicaRun one = run_thread_replica(options, requests);
    for (const int tp_size : {2, 4}) {
      options.grid.tp_size = tp_size;
      check_same_bits(one, run_thread_replica(options, requests));
    }
    options.grid = {.tp_size = 2, .pp_size = 2, .invariant_parts = 4};
    check_same_bits(one, run_thread_replica(options, requests));
  }
}

TEST_CASE("transfers beside products do not change a bit") {
  const std::vector<Request> requests = mixed_requests();
  for (const int tp_size : {2, 4}) {
    CAPTURE(tp_size);
    test::ThreadReplicaOptions options{.model = model_dir("tiny-spread8"), .grid = {.tp_size = tp_size}};
    const test::ThreadReplicaRun plain = run_thread_replica(options, requests);
    options.overlap_from = 2;
    check_same_bits(plain, run_thread_replica(options, requests));
  }
}

TEST_CASE("a rank holds its share of weights and KV, and a stage sends each token's state once") {
  const std::vector<Request> requests = mixed_requests();
  const auto run = [&](const ModelGrid& grid) {
    return test::run_thread_replica({.model = model_dir("tiny-spread8"), .grid = grid, .stages = {}}, requests);
  };
  const test::ThreadReplicaRun whole = run({});
  // 8 KV heads, 5 layers of 2 * 16 tokens * 8 heads * 8 values in float32.
  CHECK(whole.ranks[0].kv_block_bytes >= 5 * 2 * 16 * 8 * 8 * 4);
  for (const int tp_size : {2, 4, 8}) {
    for (const test::ThreadRank& rank : run({.tp_size = tp_size}).ranks)
      CHECK(rank.kv_block_bytes * tp_size == whole.ranks[0].kv_block_bytes);
  }
  const test::ThreadReplicaRun twenty_four = run({.tp_size = 24});  // three ranks share a KV head
  CHECK(twenty_four.ranks[0].kv_block_bytes * 8 == whole.ranks[0].kv_block_bytes);

  const test::ThreadReplicaRun stages = run({.pp_size = 3});
  int64_t kv_block_bytes = 0, weight_bytes = 0;
  for (const test::ThreadRank& rank : stages.ranks) {
    kv_block_bytes += rank.kv_block_bytes;
    weight_bytes += rank.weight_bytes;
  }
  CHECK(kv_block_bytes == whole.ranks[0].kv_block_bytes);
  CHECK(weight_bytes == whole.ranks[0].weight_bytes);
  const auto& sends = stages.ranks[0].pp[static_cast<size_t>(parallel::TransferKind::kSend)];
  CHECK(sends.sent_bytes == stages.num_step_tokens * 48 * 4);
  CHECK(sends.calls == stages.num_steps);
  CHECK(stages.ranks[2].pp[static_cast<size_t>(parallel::TransferKind::kRecv)].received_bytes == sends.sent_bytes);
}

/// Bytes of a linear of float32 weights, and of its place among the others.
int64_t linear_bytes(Ops& ops, int64_t in_features, int64_t out_features) {
  const LinearSpec spec{in_features,
                        out_features,
                        DType::kF32,
                        {{WeightFormat::kBF16, out_features, in_features, 0, out_features, 0, in_features}}};
  return (ops.linear_bytes(spec) + 63) / 64 * 64;
}

int64_t vector_bytes(int64_t size) { return (size * 4 + 63) / 64 * 64; }

TEST_CASE("nobody holds or moves more than its share: weights and transfers equal their formulas") {
  constexpr int64_t kHidden = 48, kLayers = 5, kHeads = 24, kKvHeads = 8, kHeadDim = 8, kVocab = 2600;
  std::vector<Request> requests;
  for (int64_t i = 0; i < 6; ++i) requests.push_back(greedy_request(i, std::vector<int32_t>(20 + 7 * i, 9), 10));
  const auto ops = make_ops({}, {.num_threads = 1});
  for (const int tp_size : {2, 4, 8}) {
    CAPTURE(tp_size);
    const test::ThreadReplicaRun run =
        test::run_thread_replica({.model = model_dir("tiny-spread8"), .grid = {.tp_size = tp_size}}, requests);
    const int64_t q = kHeads / tp_size * kHeadDim, kv = kKvHeads / tp_size * kHeadDim;
    for (int rank = 0; rank < tp_size; ++rank) {
      CAPTURE(rank);
      const auto edge = [&](int64_t total, int64_t i) { return total * i / tp_size; };
      const int64_t columns = edge(100, rank + 1) - edge(100, rank), rows = edge(kVocab, rank + 1) - edge(kVocab, rank);
      const int64_t ids = std::min(kVocab, edge(3, rank + 1) * 1024) - std::min(kVocab, edge(3, rank) * 1024);
      const int64_t layer = linear_bytes(*ops, kHidden, q + 2 * kv) + vector_bytes(q + 2 * kv) +
                            linear_bytes(*ops, q, kHidden) + linear_bytes(*ops, kHidden, 2 * columns) +
                            vector_bytes(2 * columns) + linear_bytes(*ops, columns, kHidden) +
                            4 * vector_bytes(kHidden);  // two norms, two output biases
      const LinearSpec table{kHidden, rows, DType::kF32, {{WeightFormat::kBF16, rows, kHidden, 0, rows, 0, kHidden}}};
      const int64_t ends = (ops->embedding_bytes(table) + 63) / 64 * 64 + vector_bytes(kHidden) +
                           (ids > 0 ? linear_bytes(*ops, kHidden, ids) : 0);
      CHECK(run.ranks[static_cast<size_t>(rank)].weight_bytes == kLayers * layer + ends);

      // engine/models/README.md: one sum a block, in the last layer for rows only; the embedding; partials and lists.
      const int64_t others = tp_size - 1, tokens = run.num_step_tokens, logits_rows = run.num_logits_rows;
      const int64_t most_tiles = (3 + tp_size - 1) / tp_size;
      const int64_t sums = (2 * (kLayers - 1) * tokens + 2 * logits_rows) * kHidden * 4;
      const int64_t choice = logits_rows * (6 * most_tiles + 4) * 4;
      const auto& gathers = run.ranks[static_cast<size_t>(rank)].tp[static_cast<size_t>(parallel::TransferKind::kAllGather)];
      CHECK(gathers.received_bytes == others * (sums + tokens * kHidden * 4 + choice));
      CHECK(run.ranks[static_cast<size_t>(rank)].tp[static_cast<size_t>(parallel::TransferKind::kExchange)].calls == 0);
    }
  }
}

}  // namespace
}  // namespace tokenmill
