// GGUF metadata -> ModelConfig. Key names: the GGUF specification in ggml's documentation.
#include <algorithm>

#include "engine/models/config.h"
#include "io/gguf.h"
#include "kernels/core/error.h"

namespace tokenmill {
namespace {

RopeConfig parse_rope(const io::GgufMetadata& m, const std::string& prefix, const ModelConfig& c, std::string_view where) {
  RopeConfig rope;
  rope.rotary_dim = m.has(prefix + "rope.dimension_count") ? m.integer(prefix + "rope.dimension_count") : c.head_dim;
  rope.theta = m.has(prefix + "rope.freq_base") ? m.number(prefix + "rope.freq_base") : 10000;
  rope.original_max_positions = c.max_positions;
  const std::string scaling = prefix + "rope.scaling.";
  if (!m.has(scaling + "type")) {
    if (m.has(prefix + "rope.scale_linear")) {  // the older form of linear scaling
      rope.kind = RopeConfig::Kind::kLinear;
      rope.factor = m.number(prefix + "rope.scale_linear");
    }
    return rope;
  }
  const std::string& type = m.string(scaling + "type");
  if (type == "none") return rope;
  if (type == "linear") {
    rope.kind = RopeConfig::Kind::kLinear;
  } else if (type == "yarn") {
    rope.kind = RopeConfig::Kind::kYarn;
    rope.original_max_positions = m.integer(scaling + "original_context_length");
    if (m.has(scaling + "yarn_beta_fast")) rope.beta_fast = m.number(scaling + "yarn_beta_fast");
    if (m.has(scaling + "yarn_beta_slow")) rope.beta_slow = m.number(scaling + "yarn_beta_slow");
  } else {
    throw Error(ErrorKind::kConfig, "{}: {}type is \"{}\"; supported are none, linear and yarn", where, scaling, type);
  }
  rope.factor = m.number(scaling + "factor");
  return rope;
}

/// Scaling settings that are not read here would change the result silently.
void refuse_unread_scaling(const io::GgufMetadata& m, const std::string& prefix, std::string_view where) {
  const std::string scaling = prefix + "rope.scaling.";
  for (const auto& [key, value] : m.entries()) {
    if (!key.starts_with(scaling)) continue;
    const std::string name = key.substr(scaling.size());
    const bool read = name == "type" || name == "factor" || name == "original_context_length" || name == "finetuned" ||
                      name == "yarn_beta_fast" || name == "yarn_beta_slow";
    const bool neutral = (name == "attn_factor" || name == "yarn_attn_factor" || name == "yarn_ext_factor") && m.number(key) == 1;
    if (!read && !neutral) {
      throw Error(ErrorKind::kConfig, "{}: {} ({}) is not supported; convert the model again without it", where, key, value.describe());
    }
  }
}

}  // namespace

ModelConfig parse_gguf_config(const io::GgufMetadata& m, std::string_view where) {
  ModelConfig c;
  c.architecture = m.string("general.architecture");
  if (c.architecture != "llama" && c.architecture != "qwen2" && c.architecture != "qwen3") {
    throw Error(ErrorKind::kConfig, "{}: general.architecture is \"{}\"; supported are llama, qwen2 and qwen3", where,
                c.architecture);
  }
  const std::string prefix = c.architecture + ".";
  for (const char* key : {"expert_count", "attention.sliding_window"}) {
    if (m.has(prefix + key) && m.unsigned_integer(prefix + key) > 0) {
      throw Error(ErrorKind::kConfig, "{}: {}{} is {}; it is not supported for GGUF files in this version", where, prefix,
                  key, m.unsigned_integer(prefix + key));
    }
  }
  for (const char* key : {"logit_scale", "attention.scale", "residual_scale", "embedding_scale", "attn_logit_softcapping"}) {
    if (m.has(prefix + key)) throw Error(ErrorKind::kConfig, "{}: {}{} is set; it is not supported", where, prefix, key);
  }
  c.vocab_size = static_cast<int64_t>(m.strings("tokenizer.ggml.tokens").size());
  c.hidden_size = m.integer(prefix + "embedding_length");
  c.intermediate_size = m.integer(prefix + "feed_forward_length");
  c.num_layers = m.integer(prefix + "block_count");
  c.num_heads = m.integer(prefix + "attention.head_count");
  c.num_kv_heads = m.has(prefix + "attention.head_count_kv") ? m.integer(prefix + "attention.head_count_kv") : c.num_heads;
  c.max_positions = m.integer(prefix + "context_length");
  c.rms_norm_eps = m.number(prefix + "attention.layer_norm_rms_epsilon");
  if (c.num_heads < 1 || c.num_layers < 1 || c.num_layers > 4096) check_config(c, where);
  c.head_dim = m.has(prefix + "attention.key_length") ? m.integer(prefix + "attention.key_length") : c.hidden_size / c.num_heads;
  if (m.has(prefix + "attention.value_length") && m.integer(prefix + "attention.value_length") != c.head_dim) {
    throw Error(ErrorKind::kConfig, "{}: {}attention.value_length {} differs from key_length {}; it is not supported", where,
                prefix, m.integer(prefix + "attention.value_length"), c.head_dim);
  }
  c.qkv_bias = c.architecture == "qwen2";
  c.qk_norm = c.architecture == "qwen3";
  c.layer_window.assign(c.num_layers, 0);
  refuse_unread_scaling(m, prefix, where);
  c.rope = parse_rope(m, prefix, c, where);
  if (m.has("tokenizer.ggml.eos_token_id")) c.eos_token_ids.push_back(static_cast<int32_t>(m.integer("tokenizer.ggml.eos_token_id")));
  if (m.has("tokenizer.ggml.eot_token_id")) {
    const auto eot = static_cast<int32_t>(m.integer("tokenizer.ggml.eot_token_id"));
    if (std::find(c.eos_token_ids.begin(), c.eos_token_ids.end(), eot) == c.eos_token_ids.end()) c.eos_token_ids.push_back(eot);
  }
  if (m.has("tokenizer.ggml.bos_token_id")) c.bos_token_id = static_cast<int32_t>(m.integer("tokenizer.ggml.bos_token_id"));
  check_config(c, where);
  return c;
}

}  // namespace tokenmill
