#include "engine/models/config.h"

#include "kernels/core/error.h"

namespace tokenmill {
namespace {

/// Sizes are multiplied with each other: this keeps every product far from overflow and is beyond any model.
constexpr int64_t kLargestSize = int64_t{1} << 24;

void check_size(int64_t value, const char* field, std::string_view where, int64_t largest = kLargestSize) {
  if (value >= 1 && value <= largest) return;
  throw Error(ErrorKind::kConfig, "{}: {} is {}; it must be between 1 and {}; is the file damaged?", where, field, value, largest);
}

void check_rope(const RopeConfig& rope, int64_t head_dim, std::string_view where) {
  if (rope.rotary_dim < 2 || rope.rotary_dim % 2 != 0 || rope.rotary_dim > head_dim) {
    throw Error(ErrorKind::kConfig, "{}: {} of {} head dimensions are rotary; an even number up to head_dim is supported",
                where, rope.rotary_dim, head_dim);
  }
  const bool extended = rope.kind != RopeConfig::Kind::kDefault && rope.kind != RopeConfig::Kind::kLinear;
  if (extended && rope.original_max_positions < 1) {
    throw Error(ErrorKind::kConfig, "{}: original_max_position_embeddings is {}; this rope_type needs the length before extension, at least 1",
                where, rope.original_max_positions);
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
  check_size(c.vocab_size, "vocab_size", where);
  check_size(c.hidden_size, "hidden_size", where);
  check_size(c.intermediate_size, "intermediate_size", where);
  check_size(c.num_layers, "num_hidden_layers", where, 4096);
  check_size(c.num_heads, "num_attention_heads", where);
  check_size(c.num_kv_heads, "num_key_value_heads", where);
  check_size(c.head_dim, "head_dim", where);
  check_size(c.max_positions, "max_position_embeddings", where, int64_t{1} << 40);
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
