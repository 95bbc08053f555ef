// config.json -> ModelConfig. Field names and their meaning: the transformers library's configuration classes
// (LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config), in the forms of its releases 4 and 5.
#include <array>
#include <cmath>
#include <set>

#include "engine/models/config.h"
#include "io/json.h"
#include "kernels/core/error.h"
#include "kernels/core/log.h"

namespace tokenmill {
namespace {

using io::JsonValue;

/// Typed access to an object's fields that remembers which were read.
class Fields {
 public:
  Fields(const JsonValue& object, std::string_view where) : object_(object), where_(where) {
    if (!object.is_object()) {
      throw Error(ErrorKind::kConfig, "{}: expected an object, found {}", where, object.kind_name());
    }
  }
  /// nullptr when absent or null.
  const JsonValue* find(std::string_view name) {
    used_.insert(std::string(name));
    const JsonValue* value = object_.find(name);
    return value == nullptr || value->is_null() ? nullptr : value;
  }
  int64_t integer(std::string_view name) {
    const JsonValue* value = find(name);
    if (value == nullptr) throw Error(ErrorKind::kConfig, "{}: {} is missing", where_, name);
    return as_integer(*value, name);
  }
  int64_t integer_or(std::string_view name, int64_t fallback) {
    const JsonValue* value = find(name);
    return value == nullptr ? fallback : as_integer(*value, name);
  }
  double real_or(std::string_view name, double fallback) {
    const JsonValue* value = find(name);
    return value == nullptr ? fallback : as_real(*value, name);
  }
  std::optional<double> real(std::string_view name) {
    const JsonValue* value = find(name);
    return value == nullptr ? std::nullopt : std::optional<double>(as_real(*value, name));
  }
  bool boolean_or(std::string_view name, bool fallback) {
    const JsonValue* value = find(name);
    if (value == nullptr) return fallback;
    if (!value->is_bool()) wrong(name, *value, "true or false");
    return value->as_bool();
  }
  std::optional<std::string> string(std::string_view name) {
    const JsonValue* value = find(name);
    if (value == nullptr) return std::nullopt;
    if (!value->is_string()) wrong(name, *value, "a string");
    return value->as_string();
  }
  int64_t as_integer(const JsonValue& value, std::string_view name) const {
    if (!value.is_number() || !value.fits_int64()) wrong(name, value, "an integer");
    return value.as_int64();
  }
  double as_real(const JsonValue& value, std::string_view name) const {
    if (!value.is_number() || !std::isfinite(value.as_double())) wrong(name, value, "a finite number");
    return value.as_double();
  }
  [[noreturn]] void wrong(std::string_view name, const JsonValue& value, const char* expected) const {
    throw Error(ErrorKind::kConfig, "{}: {} is {}; it must be {}", where_, name, io::to_json(value).substr(0, 100), expected);
  }
  std::vector<std::string> unused() const {
    std::vector<std::string> names;
    for (const auto& [name, value] : object_.members()) {
      if (!used_.contains(name)) names.push_back(name);
    }
    return names;
  }
  std::string_view where() const { return where_; }

 private:
  const JsonValue& object_;
  std::string_view where_;
  std::set<std::string> used_;
};

std::string architecture_of(Fields& f) {
  const auto model_type = f.string("model_type");
  const JsonValue* list = f.find("architectures");
  std::string name;
  if (list != nullptr && list->is_array() && !list->items().empty() && list->items()[0].is_string()) {
    name = list->items()[0].as_string();
  }
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 4> kKnown = {
      {{"LlamaForCausalLM", "llama"}, {"MistralForCausalLM", "mistral"}, {"Qwen2ForCausalLM", "qwen2"}, {"Qwen3ForCausalLM", "qwen3"}}};
  for (const auto& [architecture, type] : kKnown) {
    if (name == architecture || (name.empty() && model_type == std::string(type))) return std::string(type);
  }
  throw Error(ErrorKind::kConfig,
              "{}: architectures is \"{}\" (model_type \"{}\"); supported are LlamaForCausalLM, MistralForCausalLM, "
              "Qwen2ForCausalLM and Qwen3ForCausalLM",
              f.where(), name, model_type.value_or(""));
}

RopeConfig::Kind rope_kind(const std::string& name, std::string_view where) {
  if (name == "default") return RopeConfig::Kind::kDefault;
  if (name == "linear") return RopeConfig::Kind::kLinear;
  if (name == "dynamic") return RopeConfig::Kind::kDynamic;
  if (name == "llama3") return RopeConfig::Kind::kLlama3;
  if (name == "yarn") return RopeConfig::Kind::kYarn;
  throw Error(ErrorKind::kConfig, "{}: rope_type \"{}\" is not supported; supported are default, linear, dynamic, llama3 and yarn",
              where, name);
}

/// Scaling settings stand in rope_scaling (release 4) or rope_parameters (release 5), the kind under rope_type or type.
RopeConfig parse_rope(Fields& f, const ModelConfig& config) {
  RopeConfig rope;
  rope.theta = f.real_or("rope_theta", 10000);
  double partial = f.real_or("partial_rotary_factor", 1);
  rope.original_max_positions = f.integer_or("original_max_position_embeddings", config.max_positions);
  const JsonValue* scaling = f.find("rope_parameters");
  const JsonValue* legacy = f.find("rope_scaling");
  if (scaling == nullptr) scaling = legacy;
  if (scaling != nullptr) {
    const std::string where = std::string(f.where()) + ": rope settings";
    Fields s(*scaling, where);
    rope.theta = s.real_or("rope_theta", rope.theta);
    partial = s.real_or("partial_rotary_factor", partial);
    std::optional<std::string> kind = s.string("rope_type");
    if (const auto old = s.string("type"); !kind) kind = old;
    rope.kind = rope_kind(kind.value_or("default"), f.where());
    if (rope.kind != RopeConfig::Kind::kDefault) {
      const std::optional<double> factor = s.real("factor");
      rope.original_max_positions = s.integer_or("original_max_position_embeddings", rope.original_max_positions);
      if (factor) {
        rope.factor = *factor;
      } else if (rope.kind == RopeConfig::Kind::kYarn && rope.original_max_positions > 0) {
        rope.factor = static_cast<double>(config.max_positions) / rope.original_max_positions;
      } else {
        throw Error(ErrorKind::kConfig, "{}: factor is missing", where);
      }
      rope.low_freq_factor = s.real_or("low_freq_factor", rope.low_freq_factor);
      rope.high_freq_factor = s.real_or("high_freq_factor", rope.high_freq_factor);
      rope.beta_fast = s.real_or("beta_fast", rope.beta_fast);
      rope.beta_slow = s.real_or("beta_slow", rope.beta_slow);
      rope.truncate = s.boolean_or("truncate", true);
      rope.mscale = s.real("mscale");
      rope.mscale_all_dim = s.real("mscale_all_dim");
      rope.attention_factor = s.real("attention_factor");
      if (rope.kind == RopeConfig::Kind::kDynamic) rope.original_max_positions = config.max_positions;
    }
    for (const std::string& name : s.unused()) {
      if (rope.kind == RopeConfig::Kind::kDefault) break;
      if (name == "finetuned" || name == "max_position_embeddings") continue;
      throw Error(ErrorKind::kConfig, "{}: {} is not understood for rope_type {}", where, name, kind.value_or("default"));
    }
  }
  if (!(partial > 0 && partial <= 1)) {
    throw Error(ErrorKind::kConfig, "{}: partial_rotary_factor is {}; it must be above 0 and at most 1", f.where(), partial);
  }
  rope.rotary_dim = static_cast<int64_t>(static_cast<double>(config.head_dim) * partial);
  return rope;
}

/// Which layers slide: layer_types when given, else the architecture's rule.
std::vector<int64_t> parse_windows(Fields& f, const ModelConfig& c) {
  std::vector<int64_t> windows(c.num_layers, 0);
  const JsonValue* window_field = f.find("sliding_window");
  const int64_t window = window_field == nullptr ? 0 : f.as_integer(*window_field, "sliding_window");
  const bool qwen = c.architecture == "qwen2" || c.architecture == "qwen3";
  const bool used = f.boolean_or("use_sliding_window", false);
  const int64_t max_window_layers = f.integer_or("max_window_layers", c.num_layers);
  const JsonValue* types = f.find("layer_types");
  if (types != nullptr) {
    if (!types->is_array() || static_cast<int64_t>(types->items().size()) != c.num_layers) {
      f.wrong("layer_types", *types, "a list with one entry per layer");
    }
    for (int64_t i = 0; i < c.num_layers; ++i) {
      const JsonValue& type = types->items()[i];
      const bool sliding = type.is_string() && type.as_string() == "sliding_attention";
      if (!sliding && !(type.is_string() && type.as_string() == "full_attention")) {
        f.wrong("layer_types", type, "full_attention or sliding_attention");
      }
      if (sliding && window < 1) f.wrong("sliding_window", JsonValue::number(window), "at least 1 when layers slide");
      if (sliding) windows[i] = window;
    }
    return windows;
  }
  if (c.architecture == "llama") return windows;
  for (int64_t i = 0; i < c.num_layers; ++i) {
    if (qwen ? used && i >= max_window_layers : window != 0) windows[i] = window;
  }
  return windows;
}

std::optional<DType> parse_dtype(Fields& f) {
  auto name = f.string("dtype");
  if (const auto old = f.string("torch_dtype"); !name) name = old;
  if (!name) return std::nullopt;
  if (*name == "float32") return DType::kF32;
  if (*name == "bfloat16") return DType::kBF16;
  if (*name == "float16") return DType::kF16;
  return std::nullopt;
}

/// Fields that change the result in ways not built here: only their neutral value is accepted.
void refuse_unsupported(Fields& f) {
  if (const JsonValue* q = f.find("quantization_config"); q != nullptr) {
    const JsonValue* method = q->is_object() ? q->find("quant_method") : nullptr;
    throw Error(ErrorKind::kConfig, "{}: quantization_config (quant_method {}) is not supported in this version; use an unquantized checkpoint or a GGUF file",
                f.where(), method == nullptr ? "unknown" : io::to_json(*method));
  }
  const std::string act = f.string("hidden_act").value_or("silu");
  if (act != "silu" && act != "swish") {
    throw Error(ErrorKind::kConfig, "{}: hidden_act is \"{}\"; supported is silu", f.where(), act);
  }
  for (const char* name : {"num_experts", "num_local_experts", "n_routed_experts"}) {
    if (f.integer_or(name, 0) > 1) throw Error(ErrorKind::kConfig, "{}: {} is set; mixture-of-experts models are not supported in this version", f.where(), name);
  }
  for (const char* name : {"attn_logit_softcapping", "final_logit_softcapping", "logit_scale", "logits_scaling", "residual_multiplier",
                           "embedding_multiplier", "attention_multiplier", "query_pre_attn_scalar", "alibi", "attention_chunk_size", "no_rope_layers"}) {
    if (f.find(name) != nullptr) throw Error(ErrorKind::kConfig, "{}: {} is set; it is not supported", f.where(), name);
  }
  for (const char* name : {"is_encoder_decoder", "add_cross_attention", "scale_embedding", "use_qk_norm"}) {
    if (f.boolean_or(name, false)) throw Error(ErrorKind::kConfig, "{}: {} is true; it is not supported", f.where(), name);
  }
}

std::vector<int32_t> parse_eos(Fields& f) {
  std::vector<int32_t> ids;
  const JsonValue* eos = f.find("eos_token_id");
  if (eos == nullptr) return ids;
  const auto add = [&](const JsonValue& v) {
    const int64_t id = f.as_integer(v, "eos_token_id");
    if (id < 0 || id > INT32_MAX) f.wrong("eos_token_id", v, "a token id or a list of token ids");
    ids.push_back(static_cast<int32_t>(id));
  };
  if (eos->is_array()) {
    for (const JsonValue& v : eos->items()) add(v);
  } else {
    add(*eos);
  }
  return ids;
}

}  // namespace

ModelConfig parse_hf_config(const JsonValue& json, std::string_view where) {
  Fields f(json, where);
  ModelConfig c;
  c.architecture = architecture_of(f);
  refuse_unsupported(f);
  c.vocab_size = f.integer("vocab_size");
  c.hidden_size = f.integer("hidden_size");
  c.intermediate_size = f.integer("intermediate_size");
  c.num_layers = f.integer("num_hidden_layers");
  c.num_heads = f.integer("num_attention_heads");
  c.num_kv_heads = f.integer_or("num_key_value_heads", c.architecture == "mistral" ? 8 : c.num_heads);
  if (c.num_heads < 1 || c.num_layers < 1 || c.num_layers > 4096) check_config(c, where);  // before they are divided by or allocated for
  c.head_dim = f.integer_or("head_dim", c.architecture == "qwen3" ? 128 : c.hidden_size / c.num_heads);
  c.rms_norm_eps = f.real_or("rms_norm_eps", 1e-6);
  c.max_positions = f.integer("max_position_embeddings");
  c.tie_embeddings = f.boolean_or("tie_word_embeddings", false);
  const bool attention_bias = f.boolean_or("attention_bias", false);
  c.qkv_bias = c.architecture == "qwen2" || attention_bias;
  c.output_bias = attention_bias && c.architecture != "qwen2";
  c.mlp_bias = f.boolean_or("mlp_bias", false);
  c.qk_norm = c.architecture == "qwen3";
  c.rope = parse_rope(f, c);
  c.layer_window = parse_windows(f, c);
  c.dtype = parse_dtype(f);
  c.eos_token_ids = parse_eos(f);
  if (const JsonValue* bos = f.find("bos_token_id"); bos != nullptr && bos->is_number() && bos->fits_int64()) {
    c.bos_token_id = static_cast<int32_t>(bos->as_int64());
  }
  check_config(c, where);
  for (const std::string& name : f.unused()) log::debug("{}: field {} is not used", where, name);
  return c;
}

}  // namespace tokenmill
