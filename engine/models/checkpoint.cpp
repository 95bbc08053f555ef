#include "engine/models/checkpoint.h"

#include <fmt/format.h>

#include <filesystem>

#include "io/file.h"
#include "io/json.h"
#include "io/safetensors.h"
#include "kernels/core/error.h"
#include "kernels/core/log.h"

namespace tokenmill {

namespace fs = std::filesystem;

void throw_no_model(const std::string& path) {
  std::error_code ignored;
  throw Error(ErrorKind::kConfig, "--model {}: {}; give a Hugging Face directory or a .gguf file", path,
              std::filesystem::exists(path, ignored) ? fmt::format("is {}", io::kind_of_file(path))
                                                     : "no such file or directory");
}

Checkpoint::Checkpoint(const std::string& path, LoadFormat load_format) : path_(path) {
  if (load_format == LoadFormat::kDummy) weights_.set_random();
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    open_directory();
  } else if (fs::is_regular_file(path, ignored)) {
    if (fs::path(path).extension() != ".gguf") {
      throw Error(ErrorKind::kConfig, "--model {}: a file must be a .gguf; give the directory for a Hugging Face checkpoint", path);
    }
    is_gguf_ = true;
    open_gguf();
  } else {
    throw_no_model(path);
  }
}

WeightSource weight_source(const io::TensorIndex& index, const io::TensorInfo& tensor, std::string canonical_name) {
  WeightSource source;
  source.name = std::move(canonical_name);
  source.stored_name = tensor.name;
  source.file = index.file_of(tensor);
  source.shape = tensor.shape;
  source.offset = tensor.offset;
  source.num_bytes = tensor.bytes;
  if (tensor.format) {
    source.format = *tensor.format;
  } else {
    source.unsupported_type = tensor.type_name;
  }
  return source;
}

void Checkpoint::open_directory() {
  const std::string config_path = path_ + "/config.json";
  if (!fs::exists(config_path)) {
    throw Error(ErrorKind::kConfig, "--model {}: there is no config.json; give a Hugging Face directory or a .gguf file", path_);
  }
  config_ = parse_hf_config(io::parse_json_file(config_path), config_path);
  const std::string generation_path = path_ + "/generation_config.json";
  if (fs::exists(generation_path)) {
    generation_ = parse_generation_config(io::parse_json_file(generation_path), generation_path);
  }
  weights_.set_where(path_);
  if (weights_.is_random()) return;
  const io::TensorIndex index = io::read_safetensors(path_);
  for (const io::TensorInfo& tensor : index.tensors()) weights_.add(weight_source(index, tensor, tensor.name));
}

const std::vector<int32_t>& Checkpoint::eos_token_ids() const {
  return generation_.eos_token_ids.empty() ? config_.eos_token_ids : generation_.eos_token_ids;
}

int64_t Checkpoint::total_weight_bytes() const {
  int64_t total = 0;
  for (const auto& [name, source] : weights_.all()) total += source.num_bytes;
  return total;
}

namespace {

std::vector<int32_t> token_ids(const io::JsonValue& value, std::string_view where) {
  const auto one = [&](const io::JsonValue& v) {
    if (!v.is_number() || !v.fits_int64() || v.as_int64() < 0 || v.as_int64() > INT32_MAX) {
      throw Error(ErrorKind::kConfig, "{}: eos_token_id is {}; it must be a token id or a list of token ids", where,
                  io::to_json(value).substr(0, 100));
    }
    return static_cast<int32_t>(v.as_int64());
  };
  std::vector<int32_t> ids;
  if (value.is_array()) {
    for (const io::JsonValue& v : value.items()) ids.push_back(one(v));
  } else {
    ids.push_back(one(value));
  }
  return ids;
}

}  // namespace

GenerationDefaults parse_generation_config(const io::JsonValue& json, std::string_view where) {
  if (!json.is_object()) throw Error(ErrorKind::kConfig, "{}: expected an object, found {}", where, json.kind_name());
  GenerationDefaults out;
  const auto number = [&](const char* name) -> std::optional<double> {
    const io::JsonValue* value = json.find(name);
    if (value == nullptr || value->is_null()) return std::nullopt;
    if (!value->is_number()) throw Error(ErrorKind::kConfig, "{}: {} is a {}, it must be a number", where, name, value->kind_name());
    return value->as_double();
  };
  out.temperature = number("temperature");
  out.top_p = number("top_p");
  out.min_p = number("min_p");
  out.repetition_penalty = number("repetition_penalty");
  const auto integer = [&](const char* name) -> std::optional<int64_t> {
    const io::JsonValue* value = json.find(name);
    if (value == nullptr || value->is_null()) return std::nullopt;
    if (!value->is_number() || !value->fits_int64()) {
      throw Error(ErrorKind::kConfig, "{}: {} is {}, it must be an integer", where, name, io::to_json(*value).substr(0, 100));
    }
    return value->as_int64();
  };
  out.top_k = integer("top_k");
  out.max_tokens = integer("max_new_tokens");
  out.min_tokens = integer("min_new_tokens");
  if (const io::JsonValue* eos = json.find("eos_token_id"); eos != nullptr && !eos->is_null()) {
    out.eos_token_ids = token_ids(*eos, where);
  }
  // Settings that change results, with the value that changes nothing.
  constexpr std::pair<const char*, double> kNeutral[] = {{"typical_p", 1}, {"epsilon_cutoff", 0}, {"eta_cutoff", 0},
                                                         {"no_repeat_ngram_size", 0}, {"num_beams", 1}};
  for (const auto& [name, neutral] : kNeutral) {
    if (const auto value = number(name); value && *value != neutral) out.not_supported.push_back(fmt::format("{} {}", name, *value));
  }
  for (const char* name : {"suppress_tokens", "begin_suppress_tokens", "bad_words_ids", "sequence_bias"}) {
    const io::JsonValue* value = json.find(name);
    if (value != nullptr && !value->is_null() && io::to_json(*value).size() > 2) out.not_supported.emplace_back(name);  // not [] or {}
  }
  return out;
}

}  // namespace tokenmill
