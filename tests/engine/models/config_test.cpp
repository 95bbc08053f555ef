#include "engine/models/config.h"

#include <doctest/doctest.h>

#include <string>

#include "io/json.h"
#include "kernels/core/error.h"

namespace tokenmill {
namespace {

/// A small Llama configuration with extra members put in front (the last of a repeated key wins, so they go last).
ModelConfig parse(const std::string& extra) {
  std::string text = R"({"architectures":["LlamaForCausalLM"],"model_type":"llama","vocab_size":300,"hidden_size":64,
    "intermediate_size":96,"num_hidden_layers":2,"num_attention_heads":4,"num_key_value_heads":2,
    "max_position_embeddings":128,"rms_norm_eps":1e-5,"torch_dtype":"bfloat16","eos_token_id":[2,3])";
  if (!extra.empty()) text += "," + extra;
  return parse_hf_config(io::parse_json(text + "}", "config.json"), "config.json");
}

void refuses(const std::string& extra, const std::string& message) {
  CAPTURE(extra);
  CHECK_THROWS_WITH_AS(parse(extra), doctest::Contains(message.c_str()), Error);
}

TEST_CASE("a Llama configuration is read with its defaults") {
  const ModelConfig c = parse("");
  CHECK(c.architecture == "llama");
  CHECK(c.head_dim == 16);
  CHECK(c.dtype == DType::kBF16);
  CHECK(c.eos_token_ids == std::vector<int32_t>{2, 3});
  CHECK_FALSE(c.tie_embeddings);
  CHECK_FALSE(c.qkv_bias);
  CHECK(c.layer_window == std::vector<int64_t>{0, 0});
  CHECK(c.rope.theta == 10000);
}

TEST_CASE("rope settings are found in both places and under both names of the kind") {
  CHECK(parse(R"("rope_scaling":{"type":"linear","factor":2})").rope.kind == RopeConfig::Kind::kLinear);
  const RopeConfig yarn = parse(R"("rope_parameters":{"rope_type":"yarn","factor":16,"rope_theta":500,
    "original_max_position_embeddings":8,"mscale":1,"mscale_all_dim":0.707})").rope;
  CHECK(yarn.kind == RopeConfig::Kind::kYarn);
  CHECK(yarn.theta == 500);
  CHECK(yarn.original_max_positions == 8);
  CHECK(*yarn.mscale_all_dim == 0.707);
  refuses(R"("rope_scaling":{"rope_type":"longrope","factor":2})", "rope_type \"longrope\" is not supported; supported are default, linear");
  refuses(R"("rope_scaling":{"rope_type":"linear"})", "factor is missing");
  refuses(R"("rope_scaling":{"rope_type":"linear","factor":2,"short_factor":[1]})", "short_factor is not understood");
}

TEST_CASE("sliding windows follow layer_types, else the architecture's rule") {
  CHECK(parse(R"("architectures":["MistralForCausalLM"],"sliding_window":24)").layer_window == std::vector<int64_t>{24, 24});
  CHECK(parse(R"("architectures":["MistralForCausalLM"],"sliding_window":null)").layer_window == std::vector<int64_t>{0, 0});
  const std::string qwen = R"("architectures":["Qwen2ForCausalLM"],"sliding_window":24,"max_window_layers":1)";
  CHECK(parse(qwen + R"(,"use_sliding_window":false)").layer_window == std::vector<int64_t>{0, 0});
  CHECK(parse(qwen + R"(,"use_sliding_window":true)").layer_window == std::vector<int64_t>{0, 24});
  CHECK(parse(qwen + R"(,"layer_types":["sliding_attention","full_attention"])").layer_window == std::vector<int64_t>{24, 0});
  refuses(R"("layer_types":["chunked_attention","full_attention"])", "layer_types is \"chunked_attention\"");
}

TEST_CASE("what would change the result and is not supported is refused by its field") {
  refuses(R"("architectures":["GPT2LMHeadModel"])", "architectures is \"GPT2LMHeadModel\"");
  refuses(R"("hidden_act":"gelu")", "hidden_act is \"gelu\"; supported is silu");
  refuses(R"("quantization_config":{"quant_method":"awq"})", "quantization_config (quant_method \"awq\")");
  refuses(R"("num_local_experts":8)", "num_local_experts is set");
  refuses(R"("logit_scale":0.5)", "logit_scale is set");
  refuses(R"("num_key_value_heads":3)", "num_attention_heads 4 is not a multiple of num_key_value_heads 3");
  refuses(R"("vocab_size":0)", "vocab_size is 0; it must be between 1 and");
  refuses(R"("vocab_size":"many")", "vocab_size is \"many\"; it must be an integer");
  refuses(R"("num_attention_heads":0)", "num_attention_heads is 0");
  refuses(R"("eos_token_id":300)", "eos_token_id 300 is outside the vocabulary of 300");
  refuses(R"("hidden_size":1099511627776)", "hidden_size is 1099511627776; it must be between 1 and");
  refuses(R"("num_hidden_layers":5000)", "num_hidden_layers is 5000; it must be between 1 and 4096");
  refuses(R"("partial_rotary_factor":-1e30)", "partial_rotary_factor is -1e+30");
  refuses(R"("rope_scaling":{"rope_type":"yarn","factor":2,"original_max_position_embeddings":0})", "original_max_position_embeddings is 0");
  refuses(R"("head_dim":15)", "15 of 15 head dimensions are rotary");
}

TEST_CASE("Qwen's biases and norms come from the architecture") {
  CHECK(parse(R"("architectures":["Qwen2ForCausalLM"])").qkv_bias);
  CHECK_FALSE(parse(R"("architectures":["Qwen2ForCausalLM"])").output_bias);
  const ModelConfig c = parse(R"("architectures":["Qwen3ForCausalLM"])");
  CHECK(c.qk_norm);
  CHECK(c.head_dim == 128);
}

}  // namespace
}  // namespace tokenmill
