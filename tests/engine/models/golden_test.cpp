// Token for token and logit for logit against stored results of the transformers library (tests/data/README.md).
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "io/json.h"
#include "tests/support/backends.h"
#include "tests/support/model_harness.h"

namespace tokenmill {
namespace {

constexpr double kGapGuard = 5e-4;  // below this top-2 gap two float32 implementations may choose differently

const char* const kModels[] = {"tiny-llama",        "tiny-llama3",       "tiny-llama-linear", "tiny-llama-dynamic",
                               "tiny-llama-yarn",   "tiny-mistral",      "tiny-qwen2",        "tiny-qwen3",
                               "tiny-mha",          "tiny-mqa",          "tiny-oddhead",      "tiny-spread8",
                               "tiny-spread3",      "tiny-vocab259",     "tiny-llama-head64", "tiny-mistral-head96",
                               "tiny-mistral-head64", "tiny-qwen2-head64", "tiny-qwen3-head128"};

/// Every kind of layer is among those of a slow device.
std::vector<const char*> models_for(const Ops& ops) {
  if (test::is_slow(ops))
    return {"tiny-llama3", "tiny-mistral-head96", "tiny-qwen2-head64", "tiny-qwen3", "tiny-oddhead"};
  return {std::begin(kModels), std::end(kModels)};
}

io::JsonValue golden(const std::string& model) {
  return io::parse_json_file(std::string(TM_TEST_DATA) + "/golden/" + model + ".json");
}

std::vector<int32_t> ids_of(const io::JsonValue& list) {
  std::vector<int32_t> out;
  for (const io::JsonValue& v : list.items()) out.push_back(static_cast<int32_t>(v.as_int64()));
  return out;
}

test::ModelHarness load(Ops& ops, const io::JsonValue& g, DType dtype) {
  return test::ModelHarness(ops, std::string(TM_TEST_DATA) + "/models/" + g.at("model").as_string(), dtype,
                            g.at("max_model_len").as_int64());
}

/// Greedy continuation by up to num_tokens, one per step after a prompt cut in chunks.
void check_greedy(test::ModelHarness& model, const io::JsonValue& c, int64_t chunk_size, size_t num_tokens) {
  const std::vector<int32_t> prompt = ids_of(c.at("prompt_ids"));
  std::vector<int32_t> want = ids_of(c.at("output_ids"));
  want.resize(std::min(want.size(), num_tokens));
  model.reset();
  std::vector<float> logits;
  for (size_t at = 0; at < prompt.size(); at += chunk_size) {
    const size_t count = std::min<size_t>(chunk_size, prompt.size() - at);
    logits = model.step({prompt.begin() + at, prompt.begin() + at + count}, {static_cast<int32_t>(count) - 1})[0];
  }
  for (size_t i = 0; i < want.size(); ++i) {
    if (c.at("gaps").items()[i].as_double() < kGapGuard) {
      MESSAGE("not judged past token ", i, ": top-2 gap below ", kGapGuard);
      return;
    }
    const auto got = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    REQUIRE_MESSAGE(got == want[i], "token ", i);
    if (i + 1 < want.size()) logits = model.step({got}, {0})[0];
  }
}

TEST_CASE("greedy ids equal transformers' in float32, whatever the chunk size") {
  for (Ops* ops : test::backends()) {
    for (const char* name : models_for(*ops)) {
      const io::JsonValue g = golden(name);
      test::ModelHarness model = load(*ops, g, DType::kF32);
      for (const io::JsonValue& c : g.at("cases").items()) {
        CAPTURE(ops->describe());
        CAPTURE(name);
        CAPTURE(c.at("name").as_string());
        if (test::is_slow(*ops)) {
          check_greedy(model, c, 512, 4);
        } else {
          for (const int64_t chunk_size : {512, 7}) check_greedy(model, c, chunk_size, 1000);
        }
      }
    }
  }
}

TEST_CASE("float32 logits equal transformers' within rounding") {
  for (Ops* ops : test::backends()) {
    CAPTURE(ops->describe());
    for (const char* name : models_for(*ops)) {
      const io::JsonValue g = golden(name);
      test::ModelHarness model = load(*ops, g, DType::kF32);
      for (const io::JsonValue& c : g.at("cases").items()) {
        const io::JsonValue* wanted = c.find("logits");
        if (wanted == nullptr) continue;
        std::vector<int32_t> ids = ids_of(c.at("prompt_ids"));
        for (const int32_t id : ids_of(c.at("output_ids"))) ids.push_back(id);
        const auto got = model.logits(ids, 64);
        for (const io::JsonValue& row : wanted->items()) {
          CAPTURE(name);
          CAPTURE(row.at("position").as_int64());
          const std::vector<float>& logits = got[row.at("position").as_int64()];
          double largest = 0, scale = 0;
          for (size_t i = 0; i < logits.size(); ++i) {
            const double want = row.at("values").items()[i].as_double();
            largest = std::max(largest, std::abs(want - logits[i]));
            scale = std::max(scale, std::abs(want));
          }
          CHECK(largest < 2e-5 * std::max(scale, 1.0));  // f32 sums of a few hundred terms in another order
        }
      }
    }
  }
}

TEST_CASE("bfloat16 logits are as close to float32 as torch's") {
  for (Ops* ops : test::backends()) {
    CAPTURE(ops->describe());
    for (const char* name : models_for(*ops)) {
      const io::JsonValue g = golden(name);
      const io::JsonValue& reference = g.at("bfloat16");
      test::ModelHarness exact = load(*ops, g, DType::kF32), rounded = load(*ops, g, DType::kBF16);
      for (const io::JsonValue& c : g.at("cases").items()) {
        if (c.at("name").as_string() != reference.at("case").as_string()) continue;
        std::vector<int32_t> ids = ids_of(c.at("prompt_ids"));
        for (const int32_t id : ids_of(c.at("output_ids"))) ids.push_back(id);
        const auto want = exact.logits(ids, 64), got = rounded.logits(ids, 64);
        double sum = 0;
        int64_t count = 0;
        for (size_t r = 0; r < want.size(); ++r) {
          for (size_t i = 0; i < want[r].size(); ++i, ++count) sum += std::pow(want[r][i] - got[r][i], 2.0);
        }
        CAPTURE(name);
        CHECK(std::sqrt(sum / count) < 1.1 * reference.at("rms_difference").as_double());
      }
    }
  }
}

}  // namespace
}  // namespace tokenmill
