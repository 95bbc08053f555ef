#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/models/rope.h"
#include "kernels/core/dtype.h"

namespace tokenmill::io {
class JsonValue;
class GgufMetadata;
}  // namespace tokenmill::io

namespace tokenmill {

/// One decoder, every field checked. Hugging Face's and GGUF's names end here.
struct ModelConfig {
  std::string architecture;  ///< "llama", "mistral", "qwen2", "qwen3"
  int64_t vocab_size = 0;    ///< rows of the embedding; ids beyond the tokenizer's are padding
  int64_t hidden_size = 0, intermediate_size = 0;
  int64_t num_layers = 0, num_heads = 0, num_kv_heads = 0, head_dim = 0;
  double rms_norm_eps = 1e-6;
  int64_t max_positions = 0;  ///< longest context the checkpoint claims
  bool tie_embeddings = false;
  bool qkv_bias = false, output_bias = false, mlp_bias = false;
  bool qk_norm = false;
  RopeConfig rope;
  std::vector<int64_t> layer_window;  ///< per layer; 0: full attention
  std::optional<DType> dtype;         ///< the checkpoint's own, when it says so
  std::vector<int32_t> eos_token_ids; ///< from the configuration; generation_config.json may replace them
  std::optional<int32_t> bos_token_id;
};

/// From config.json. where names the file in errors. Throws Error(kConfig) naming the field, what was found and what is
/// supported; a field that would change the result and is not understood is refused.
ModelConfig parse_hf_config(const io::JsonValue& json, std::string_view where);

/// From GGUF metadata (architectures llama, qwen2, qwen3); the same rules. tie_embeddings and frequency_divisors depend on
/// the tensors and are left to the caller.
ModelConfig parse_gguf_config(const io::GgufMetadata& metadata, std::string_view where);

/// Checks the relations between fields (sizes positive, heads divide, ...). Called by both parsers.
void check_config(const ModelConfig& config, std::string_view where);

}  // namespace tokenmill
