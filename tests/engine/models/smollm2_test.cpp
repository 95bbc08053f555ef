// A real model against stored results of the transformers library (tests/data/README.md): SmolLM2-135M-Instruct, Q4_1.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <numeric>
#include <string>

#include "io/json.h"
#include "tests/support/model_harness.h"

namespace tokenmill {
namespace {

constexpr double kGapGuard = 5e-4;

/// The .gguf file, or nullptr after saying why the test is skipped.
const char* model_path() {
  const char* path = std::getenv("TOKENMILL_SMOLLM2");
  if (path == nullptr || *path == '\0') MESSAGE("skipped: TOKENMILL_SMOLLM2 does not name the model file (scripts/fetch_model)");
  return path == nullptr || *path == '\0' ? nullptr : path;
}

std::vector<int32_t> ids_of(const io::JsonValue& list) {
  std::vector<int32_t> out;
  for (const io::JsonValue& v : list.items()) out.push_back(static_cast<int32_t>(v.as_int64()));
  return out;
}

std::vector<int32_t> all_ids(const io::JsonValue& c) {
  std::vector<int32_t> ids = ids_of(c.at("prompt_ids"));
  for (const int32_t id : ids_of(c.at("output_ids"))) ids.push_back(id);
  return ids;
}

/// Logits of positions [first, ids.size() - 1), each predicting the next id.
std::vector<std::vector<float>> predictions(test::ModelHarness& model, const std::vector<int32_t>& ids, int64_t first) {
  constexpr int64_t kChunk = 256;
  model.reset();
  std::vector<std::vector<float>> out;
  const int64_t end = static_cast<int64_t>(ids.size()) - 1;
  for (int64_t at = 0; at < end; at += kChunk) {
    const int64_t count = std::min(kChunk, end - at);
    std::vector<int32_t> wanted;
    for (int64_t i = std::max<int64_t>(first - at, 0); i < count; ++i) wanted.push_back(static_cast<int32_t>(i));
    for (auto& row : model.step({ids.begin() + at, ids.begin() + at + count}, wanted)) out.push_back(std::move(row));
  }
  return out;
}

TEST_CASE("SmolLM2 in float32: every greedy token equals transformers'") {
  const char* path = model_path();
  if (path == nullptr) return;
  const io::JsonValue g = io::parse_json_file(std::string(TM_TEST_DATA) + "/golden/smollm2.json");
  const auto ops = make_ops({}, {.num_threads = 2});
  test::ModelHarness model(*ops, path, DType::kF32, 2048);
  int64_t cut_rows = 0, judged = 0;
  for (const io::JsonValue& c : g.at("cases").items()) {
    CAPTURE(c.at("name").as_string());
    const std::vector<int32_t> ids = all_ids(c), want = ids_of(c.at("output_ids"));
    const auto first = static_cast<int64_t>(ids.size() - want.size()) - 1;
    const auto logits = predictions(model, ids, first);
    REQUIRE(logits.size() == want.size());
    for (size_t i = 0; i < want.size(); ++i, ++judged) {
      if (c.at("gaps").items()[i].as_double() < kGapGuard) {
        ++cut_rows;
        break;
      }
      const auto got = std::max_element(logits[i].begin(), logits[i].end()) - logits[i].begin();
      REQUIRE_MESSAGE(got == want[i], "token ", i);
    }
  }
  MESSAGE(judged, " tokens of ", g.at("cases").items().size(), " rows equal; ", cut_rows, " row(s) not judged past a top-2 gap below ", kGapGuard);
  CHECK(judged > 2000);
}

TEST_CASE("SmolLM2 in float32: logits equal transformers' within rounding") {
  const char* path = model_path();
  if (path == nullptr) return;
  const io::JsonValue g = io::parse_json_file(std::string(TM_TEST_DATA) + "/golden/smollm2.json");
  const int64_t stride = g.at("logit_stride").as_int64();
  const auto ops = make_ops({}, {.num_threads = 2});
  test::ModelHarness model(*ops, path, DType::kF32, 2048);
  for (const io::JsonValue& c : g.at("cases").items()) {
    const io::JsonValue* wanted = c.find("logits");
    if (wanted == nullptr) continue;
    std::vector<int32_t> ids = all_ids(c);
    ids.push_back(0);  // so that the last position predicts too
    const auto got = predictions(model, ids, 0);
    for (const io::JsonValue& row : wanted->items()) {
      const int64_t position = row.at("position").as_int64();
      const auto& values = row.at("values").items();
      double largest = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        largest = std::max(largest, std::abs(values[i].as_double() - got[position][static_cast<int64_t>(i) * stride]));
      }
      CAPTURE(c.at("name").as_string());
      CAPTURE(position);
      CHECK(largest < 2e-3);  // logits of +-30 after 30 layers of float32 sums in another order
    }
  }
}

TEST_CASE("SmolLM2 in bfloat16: logits are as close to float32 as torch's") {
  const char* path = model_path();
  if (path == nullptr) return;
  const io::JsonValue g = io::parse_json_file(std::string(TM_TEST_DATA) + "/golden/smollm2.json");
  const auto ops = make_ops({}, {.num_threads = 2});
  test::ModelHarness exact(*ops, path, DType::kF32, 2048), rounded(*ops, path, DType::kBF16, 2048);
  double sum = 0, reference_sum = 0;
  int64_t count = 0, positions = 0;
  for (const io::JsonValue& c : g.at("cases").items()) {
    const io::JsonValue* reference = c.find("bfloat16");
    if (reference == nullptr) continue;
    std::vector<int32_t> ids = all_ids(c);
    ids.push_back(0);
    const auto want = predictions(exact, ids, 0), got = predictions(rounded, ids, 0);
    for (size_t r = 0; r < want.size(); ++r) {
      for (size_t i = 0; i < want[r].size(); ++i, ++count) {
        const double difference = static_cast<double>(want[r][i]) - got[r][i];
        sum += difference * difference;
      }
    }
    const auto n = reference->at("num_positions").as_int64();
    reference_sum += static_cast<double>(n) * std::pow(reference->at("rms_difference").as_double(), 2);
    positions += n;
  }
  const double ours = std::sqrt(sum / static_cast<double>(count)), torch = std::sqrt(reference_sum / static_cast<double>(positions));
  MESSAGE("rms difference of logits to float32: ours ", ours, ", torch's ", torch, ", ratio ", ours / torch);
  CHECK(ours <= 1.1 * torch);
}

}  // namespace
}  // namespace tokenmill
