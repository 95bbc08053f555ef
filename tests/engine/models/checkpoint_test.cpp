#include "engine/models/checkpoint.h"

#include <doctest/doctest.h>

#include <string>

#include "engine/models/tokenizer_source.h"
#include "io/json.h"
#include "kernels/core/error.h"

namespace tokenmill {
namespace {

std::string model(const std::string& name) { return std::string(TM_TEST_DATA) + "/models/" + name; }

TEST_CASE("a directory and its GGUF conversion open as the same model") {
  const Checkpoint hf(model("tiny-llama")), gguf(model("gguf/tiny-llama-F32.gguf"));
  CHECK_FALSE(hf.is_gguf());
  CHECK(gguf.is_gguf());
  for (const auto& field : {&ModelConfig::vocab_size, &ModelConfig::hidden_size, &ModelConfig::intermediate_size,
                            &ModelConfig::num_layers, &ModelConfig::num_heads, &ModelConfig::num_kv_heads,
                            &ModelConfig::head_dim, &ModelConfig::max_positions}) {
    CHECK(hf.config().*field == gguf.config().*field);
  }
  CHECK(hf.config().rms_norm_eps == doctest::Approx(gguf.config().rms_norm_eps).epsilon(1e-6));
  CHECK(hf.config().rope.theta == gguf.config().rope.theta);
  CHECK(hf.config().tie_embeddings);
  CHECK(gguf.config().tie_embeddings);
  CHECK(gguf.eos_token_ids() == hf.eos_token_ids());
  for (const auto& [name, source] : gguf.weights().all()) CHECK(hf.weights().at(name).shape == source.shape);
}

TEST_CASE("GGUF's Llama permutes q and k, its Qwen does not") {
  const Checkpoint llama(model("gguf/tiny-llama-F16.gguf")), qwen(model("gguf/tiny-qwen2-BF16.gguf"));
  const std::string q = "model.layers.0.self_attn.q_proj.weight";
  CHECK(llama.weights().at(q).row_order == RowOrder::kInterleavedToHalves);
  CHECK(llama.weights().at(q).head_dim == 16);
  CHECK(llama.weights().at("model.layers.0.self_attn.v_proj.weight").row_order == RowOrder::kAsIs);
  CHECK(qwen.weights().at(q).row_order == RowOrder::kAsIs);
  CHECK(qwen.config().qkv_bias);
}

TEST_CASE("shards are one catalog, and end tokens come from generation_config.json") {
  const Checkpoint sharded(model("tiny-llama3"));
  CHECK(sharded.weights().find("lm_head.weight") != nullptr);
  CHECK(sharded.eos_token_ids() == std::vector<int32_t>{1, 3});
  const Checkpoint gguf(model("gguf/tiny-llama3-F16.gguf"));
  CHECK(gguf.config().rope.frequency_divisors.size() == 6);
}

TEST_CASE("generation defaults are read, and what cannot be honoured is listed") {
  const auto parse = [](const char* text) { return parse_generation_config(io::parse_json(text, "g"), "generation_config.json"); };
  const GenerationDefaults d = parse(R"({"temperature":0.6,"top_k":20,"top_p":0.95,"eos_token_id":[2,3],"repetition_penalty":1.05,"max_new_tokens":99,"min_new_tokens":3,"num_beams":1,"no_repeat_ngram_size":3,"suppress_tokens":[],"bad_words_ids":[[1]]})");
  CHECK(*d.temperature == 0.6);
  CHECK(*d.top_k == 20);
  CHECK(*d.top_p == 0.95);
  CHECK(*d.max_tokens == 99);
  CHECK(d.eos_token_ids == std::vector<int32_t>{2, 3});
  CHECK(*d.repetition_penalty == 1.05);
  CHECK(*d.min_tokens == 3);
  CHECK(d.not_supported == std::vector<std::string>{"no_repeat_ngram_size 3", "bad_words_ids"});
  CHECK(parse(R"({"eos_token_id":2})").eos_token_ids == std::vector<int32_t>{2});
  CHECK_THROWS_WITH_AS(parse(R"({"eos_token_id":"x"})"), doctest::Contains("eos_token_id is \"x\""), Error);
  CHECK_THROWS_WITH_AS(parse(R"({"top_k":1e30})"), doctest::Contains("top_k is 1e30, it must be an integer"), Error);
  CHECK_THROWS_WITH_AS(parse(R"({"temperature":"hot"})"), doctest::Contains("temperature is a string"), Error);
}

TEST_CASE("a path that is no checkpoint is refused with what to give instead") {
  CHECK_THROWS_WITH_AS(Checkpoint("/nonexistent"), doctest::Contains("no such file or directory"), Error);
  CHECK_THROWS_WITH_AS(Checkpoint(std::string(TM_TEST_DATA)), doctest::Contains("there is no config.json"), Error);
  CHECK_THROWS_WITH_AS(Checkpoint(model("tiny-llama") + "/config.json"), doctest::Contains("must be a .gguf"), Error);
}

TEST_CASE("tokenizers of a directory and of its GGUF conversion agree") {
  const TokenizerSource hf = load_tokenizer(model("tiny-llama")), gguf = load_tokenizer(model("gguf/tiny-llama-F32.gguf"));
  const std::string text = "The capital of France is <|im_end|> 123  caf\u00e9\n";
  CHECK(hf.tokenizer.encode(text) == gguf.tokenizer.encode(text));
  REQUIRE(hf.chat_templates.size() == 1);
  REQUIRE(gguf.chat_templates.size() == 1);
  CHECK(hf.chat_templates[0].text == gguf.chat_templates[0].text);
  CHECK(hf.special_tokens == gguf.special_tokens);
}

}  // namespace
}  // namespace tokenmill
