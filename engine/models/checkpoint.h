#pragma once
#include <memory>
#include <optional>
#include <string>

#include "engine/models/config.h"
#include "engine/models/load_mode.h"
#include "engine/models/weight_catalog.h"
#include "engine/sampling.h"

namespace tokenmill::io {
class TensorIndex;
struct TensorInfo;
}  // namespace tokenmill::io

namespace tokenmill {

/// generation_config.json's sampling settings: defaults below the job's own. Absent fields are empty.
struct GenerationDefaults {
  std::optional<double> temperature, top_p, min_p, repetition_penalty;
  std::optional<int64_t> top_k, max_tokens, min_tokens;
  std::vector<int32_t> eos_token_ids;  ///< empty: as the model configuration says
  /// Settings that would change results and cannot be honoured yet, as "no_repeat_ngram_size 3".
  std::vector<std::string> not_supported;
};

/// A Hugging Face directory or a .gguf file as one thing: configuration, generation defaults, tensors under Hugging
/// Face names. The tokenizer and chat template of the same path: engine/models/tokenizer_source.h. Reads only headers.
class Checkpoint {
 public:
  /// kDummy: a directory needs no tensors, and a file's are not used. Throws Error(kConfig) for what is not supported,
  /// Error(kIo) for what is damaged or missing, naming file and field.
  explicit Checkpoint(const std::string& path, LoadFormat load_format = LoadFormat::kAuto);
  const std::string& path() const { return path_; }
  bool is_gguf() const { return is_gguf_; }
  const ModelConfig& config() const { return config_; }
  const WeightCatalog& weights() const { return weights_; }
  const GenerationDefaults& generation() const { return generation_; }
  /// End tokens in force: generation_config.json's, else the configuration's.
  const std::vector<int32_t>& eos_token_ids() const;
  int64_t total_weight_bytes() const;  ///< as stored

 private:
  void open_directory();
  void open_gguf();
  std::string path_;
  bool is_gguf_ = false;
  ModelConfig config_;
  WeightCatalog weights_;
  GenerationDefaults generation_;
};

/// A file's tensor as a catalog entry.
WeightSource weight_source(const io::TensorIndex& index, const io::TensorInfo& tensor, std::string canonical_name);

/// Throws Error(kConfig): --model names nothing that a model could be.
[[noreturn]] void throw_no_model(const std::string& path);

/// Parses generation_config.json's object.
GenerationDefaults parse_generation_config(const io::JsonValue& json, std::string_view where);

}  // namespace tokenmill
