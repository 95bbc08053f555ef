#include "engine/models/config.h"

#include "kernels/core/error.h"

namespace tokenmill {
namespace {

void positive(int64_t value, const char* field, std::string_view where) {
  if (value < 1 || value > (int64_t{1} << 40)) {
    throw Error(ErrorKind::kConfig, "{}: {} is {}; it must be at least 1", where, field, value);
  }
}

void check_rope(const RopeConfig& rope, int64_t head_dim, std::string_view where) {
  if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0 || rope.rotary_dim > head_dim) {
    throw Error(ErrorKind::kConfig, "{}: {} of {} head dimensions are rotary; an even number up to head_dim is supported",
                where, rope.rotary_dim, head_dim);
  }
  if (!(rope.theta > 1)) throw Error(ErrorKind::kConfig, "{}: rope_theta is {}; it must be above 1", where, rope.theta);
  if (!(rope.factor >= 1)) {
    throw Error(ErrorKind::kConfig, "{}: rope factor is {}; it must be at least 1", where, rope.factor);
  }
  if (rope.kind == RopeConfig::Kind::kDynamic && rope.rotary_dim <= 2) {
    throw Error(ErrorKind::kConfig, "{}: rope_type dynamic needs more than 2 rotary dimensions", where);
  }
  if (rope.kind == RopeConfig::Kind::kLlama3 && !(rope.high_freq_factor > rope.low_freq_factor && rope.low_freq_factor > 0)) {
    throw Error(ErrorKind::kConfig, "{}: low_freq_factor {} must be above 0 and below high_freq_factor {}", where,
                rope.low_freq_factor, rope.high_freq_factor);
  }
  if (rope.kind == RopeConfig::Kind::kYarn && !(rope.beta_fast > rope.beta_slow && rope.beta_slow > 0)) {
    throw Error(ErrorKind::kConfig, "{}: beta_slow {} must be above 0 and below beta_fast {}", where, rope.beta_slow,
                rope.beta_fast);
  }
}

}  // namespace

void check_config(const ModelConfig& c, std::string_view where) {
  positive(c.vocab_size, "vocab_size", where);
  positive(c.hidden_size, "hidden_size", where);
  positive(c.intermediate_size, "intermediate_size", where);
  positive(c.num_layers, "num_hidden_layers", where);
  positive(c.num_heads, "num_attention_heads", where);
  positive(c.num_kv_heads, "num_key_value_heads", where);
  positive(c.head_dim, "head_dim", where);
  positive(c.max_positions, "max_position_embeddings", where);
  if (c.vocab_size > INT32_MAX / 2) {
    throw Error(ErrorKind::kConfig, "{}: vocab_size {} is above {}", where, c.vocab_size, INT32_MAX / 2);
  }
  if (c.num_layers > 4096) throw Error(ErrorKind::kConfig, "{}: {} layers; at most 4096", where, c.num_layers);
  if (c.num_heads % c.num_kv_heads != 0) {
    throw Error(ErrorKind::kConfig, "{}: num_attention_heads {} is not a multiple of num_key_value_heads {}", where,
                c.num_heads, c.num_kv_heads);
  }
  if (!(c.rms_norm_eps > 0 && c.rms_norm_eps < 1)) {
    throw Error(ErrorKind::kConfig, "{}: rms_norm_eps is {}; it must be between 0 and 1", where, c.rms_norm_eps);
  }
  if (static_cast<int64_t>(c.layer_window.size()) != c.num_layers) {
    throw Error(ErrorKind::kConfig, "{}: layer_types names {} layers, num_hidden_layers says {}", where,
                c.layer_window.size(), c.num_layers);
  }
  for (const int64_t window : c.layer_window) {
    if (window < 0) throw Error(ErrorKind::kConfig, "{}: sliding_window is {}; it must be at least 1", where, window);
  }
  for (const int32_t id : c.eos_token_ids) {
    if (id < 0 || id >= c.vocab_size) {
      throw Error(ErrorKind::kConfig, "{}: eos_token_id {} is outside the vocabulary of {}", where, id, c.vocab_size);
    }
  }
  check_rope(c.rope, c.head_dim, where);
}

}  // namespace tokenmill
