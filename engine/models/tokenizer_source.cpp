#include "engine/models/tokenizer_source.h"

#include <algorithm>
#include <filesystem>
#include <optional>

#include "engine/models/checkpoint.h"
#include "engine/text/tokenizer_gguf.h"
#include "io/gguf.h"
#include "kernels/core/error.h"

namespace tokenmill {
namespace {

constexpr const char* kVocabulary = "tokenizer.ggml.";
constexpr const char* kTemplate = "tokenizer.chat_template";

std::optional<int64_t> optional_id(const io::GgufMetadata& m, const std::string& name) {
  const std::string key = kVocabulary + name;
  return m.has(key) ? std::optional<int64_t>(m.integer(key)) : std::nullopt;
}

std::optional<bool> optional_flag(const io::GgufMetadata& m, const std::string& name) {
  const std::string key = kVocabulary + name;
  return m.has(key) ? std::optional<bool>(m.boolean(key)) : std::nullopt;
}

text::GgufVocabulary read_vocabulary(const io::GgufMetadata& m) {
  text::GgufVocabulary v;
  const std::string at = kVocabulary;
  v.model = m.string(at + "model");
  if (m.has(at + "pre")) v.pre = m.string(at + "pre");
  v.tokens = m.strings(at + "tokens");
  if (m.has(at + "scores")) {
    for (const double score : m.numbers(at + "scores")) v.scores.push_back(static_cast<float>(score));
  }
  if (m.has(at + "token_type")) {
    for (const int64_t type : m.integers(at + "token_type")) v.token_types.push_back(static_cast<int32_t>(type));
  }
  if (m.has(at + "merges")) v.merges = m.strings(at + "merges");
  v.bos_id = optional_id(m, "bos_token_id");
  v.eos_id = optional_id(m, "eos_token_id");
  v.unk_id = optional_id(m, "unknown_token_id");
  v.pad_id = optional_id(m, "padding_token_id");
  v.add_bos = optional_flag(m, "add_bos_token");
  v.add_eos = optional_flag(m, "add_eos_token");
  v.add_space_prefix = optional_flag(m, "add_space_prefix");
  return v;
}

/// tokenizer.chat_template is the default; tokenizer.chat_template.NAME are further ones.
std::vector<text::ChatTemplateSource> read_templates(const io::GgufMetadata& m) {
  std::vector<text::ChatTemplateSource> out;
  if (m.has(kTemplate)) out.push_back({"default", m.string(kTemplate)});
  const std::string prefix = std::string(kTemplate) + ".";
  for (const auto& [key, value] : m.entries()) {
    if (key.starts_with(prefix)) out.push_back({key.substr(prefix.size()), m.string(key)});
  }
  return out;
}

void add_special(TokenizerSource& source, const char* name, std::optional<int32_t> id) {
  if (!id) return;
  if (const auto spelling = source.tokenizer.id_to_token(*id)) source.special_tokens.emplace_back(name, *spelling);
}

TokenizerSource load_gguf(const std::string& path) {
  const io::GgufFile file = io::read_gguf(path);
  TokenizerSource source{text::load_tokenizer_gguf(read_vocabulary(file.metadata), path), read_templates(file.metadata), {}};
  add_special(source, "bos_token", source.tokenizer.bos_id());
  add_special(source, "eos_token", source.tokenizer.eos_id());
  add_special(source, "pad_token", source.tokenizer.pad_id());
  add_special(source, "unk_token", source.tokenizer.unk_id());
  return source;
}

TokenizerSource load_directory(const std::string& path) {
  text::LoadedTokenizer loaded = text::load_tokenizer_directory(path);
  TokenizerSource source{std::move(loaded.tokenizer), std::move(loaded.config.chat_templates), {}};
  const auto add = [&](const char* name, const std::optional<std::string>& token) {
    if (token) source.special_tokens.emplace_back(name, *token);
  };
  add("bos_token", loaded.config.bos_token);
  add("eos_token", loaded.config.eos_token);
  add("pad_token", loaded.config.pad_token);
  add("unk_token", loaded.config.unk_token);
  return source;
}

}  // namespace

TokenizerSource load_tokenizer(const std::string& path) {
  std::error_code ignored;
  const bool is_directory = std::filesystem::is_directory(path, ignored);
  if (!is_directory && !std::filesystem::is_regular_file(path, ignored)) throw_no_model(path);
  TokenizerSource source = is_directory ? load_directory(path) : load_gguf(path);
  std::stable_partition(source.chat_templates.begin(), source.chat_templates.end(),
                        [](const text::ChatTemplateSource& t) { return t.name == "default"; });
  return source;
}

}  // namespace tokenmill
