// The GGUF half of Checkpoint: tensor names of the format's specification -> Hugging Face's.
#include <optional>
#include <utility>

#include "engine/models/checkpoint.h"
#include "io/file.h"
#include "io/gguf.h"
#include "kernels/core/error.h"
#include "kernels/core/log.h"

namespace tokenmill {
namespace {

constexpr std::pair<const char*, const char*> kGlobalNames[] = {
    {"token_embd.weight", "model.embed_tokens.weight"}, {"output_norm.weight", "model.norm.weight"}, {"output.weight", "lm_head.weight"}};

constexpr std::pair<const char*, const char*> kLayerNames[] = {
    {"attn_norm", "input_layernorm"},       {"attn_q", "self_attn.q_proj"},       {"attn_k", "self_attn.k_proj"},
    {"attn_v", "self_attn.v_proj"},         {"attn_output", "self_attn.o_proj"},  {"attn_q_norm", "self_attn.q_norm"},
    {"attn_k_norm", "self_attn.k_norm"},    {"ffn_norm", "post_attention_layernorm"}, {"ffn_gate", "mlp.gate_proj"},
    {"ffn_up", "mlp.up_proj"},              {"ffn_down", "mlp.down_proj"}};

/// "blk.3.attn_q.weight" -> "model.layers.3.self_attn.q_proj.weight"; nothing for a name that no model here uses.
std::optional<std::string> canonical_name(const std::string& name) {
  for (const auto& [from, to] : kGlobalNames) {
    if (name == from) return to;
  }
  if (!name.starts_with("blk.")) return std::nullopt;
  const size_t layer_end = name.find('.', 4), kind_end = name.rfind('.');
  if (layer_end == std::string::npos || kind_end <= layer_end) return std::nullopt;
  const std::string kind = name.substr(layer_end + 1, kind_end - layer_end - 1);
  for (const auto& [from, to] : kLayerNames) {
    if (kind == from) return "model.layers." + name.substr(4, layer_end - 4) + "." + to + name.substr(kind_end);
  }
  return std::nullopt;
}

bool is_query_or_key(const std::string& canonical) {
  return canonical.find(".q_proj.") != std::string::npos || canonical.find(".k_proj.") != std::string::npos;
}

/// Llama 3.1 conversions store rotary scaling as divisors per frequency.
std::vector<float> read_divisors(const std::string& path, const io::TensorInfo& tensor, int64_t count) {
  if (tensor.format != WeightFormat::kF32 || tensor.num_elements() != count) {
    throw Error(ErrorKind::kIo, "{}: tensor {} is {} {}; rotary_dim / 2 = {} values of F32 are expected", path, tensor.name,
                tensor.type_name, io::shape_text(tensor.shape), count);
  }
  std::vector<float> values(count);
  io::File::open_read(path).read_exactly_at(tensor.offset, std::as_writable_bytes(std::span(values)));
  for (const float v : values) {
    if (!(v > 0)) throw Error(ErrorKind::kIo, "{}: tensor {} holds {}; divisors are positive", path, tensor.name, v);
  }
  return values;
}

}  // namespace

void Checkpoint::open_gguf() {
  const io::GgufFile file = io::read_gguf(path_);
  config_ = parse_gguf_config(file.metadata, path_);
  weights_.set_where(path_);
  for (const io::TensorInfo& tensor : file.tensors.tensors()) {
    if (tensor.name == "rope_freqs.weight") {
      config_.rope.frequency_divisors = read_divisors(path_, tensor, config_.rope.rotary_dim / 2);
      continue;
    }
    const std::optional<std::string> name = canonical_name(tensor.name);
    if (!name) {
      throw Error(ErrorKind::kConfig, "{}: tensor {} has no place in architecture {}; the file may be of a newer kind of model",
                  path_, tensor.name, config_.architecture);
    }
    WeightSource source = weight_source(file.tensors, tensor, *name);
    if (config_.architecture == "llama" && is_query_or_key(*name)) {
      source.row_order = RowOrder::kInterleavedToHalves;
      source.head_dim = config_.head_dim;
    }
    weights_.add(std::move(source));
  }
  config_.tie_embeddings = weights_.find("lm_head.weight") == nullptr;
  // Conversions of Llama with attention biases carry them as tensors; the metadata does not say.
  const std::string attention = "model.layers.0.self_attn.";
  config_.qkv_bias = weights_.find(attention + "q_proj.bias") != nullptr;
  config_.output_bias = weights_.find(attention + "o_proj.bias") != nullptr;
}

}  // namespace tokenmill
