#include "engine/text/tokenizer_loader.h"

#include <algorithm>
#include <filesystem>

#include "engine/text/tokenizer_json.h"
#include "engine/text/unicode.h"
#include "io/file.h"
#include "kernels/core/error.h"
#include "kernels/core/log.h"

namespace tokenmill::text {
namespace {

constexpr int64_t kMaxTemplateBytes = 16 << 20;

/// Adds what tokenizer_config.json lists and tokenizer.json does not.
void add_missing_tokens(TokenizerParts& parts, const TokenizerConfig& config, std::string_view where) {
  const Vocabulary& vocabulary = parts.model.vocabulary();
  for (AddedToken token : config.added_tokens) {
    const bool listed = std::any_of(parts.added_tokens.begin(), parts.added_tokens.end(), [&](const AddedToken& t) {
      return t.content == token.content || t.id == token.id;
    });
    if (listed) continue;
    if (const auto known = vocabulary.find(token.content)) {
      token.id = *known;
    } else if (vocabulary.contains(token.id)) {
      throw Error(ErrorKind::kInput, "{}: tokenizer_config.json gives id {} to \"{}\", tokenizer.json to \"{}\"", where,
                  token.id, token.content, vocabulary.token(token.id));
    }
    parts.added_tokens.push_back(std::move(token));
  }
}

/// Id of a token that tokenizer_config.json names; the token becomes special.
std::optional<int32_t> special_id(TokenizerParts& parts, const std::optional<std::string>& content, const char* name,
                                  std::string_view where) {
  if (!content || content->empty()) return std::nullopt;
  for (AddedToken& token : parts.added_tokens) {
    if (token.content != *content) continue;
    token.special = true;
    return token.id;
  }
  const auto id = parts.model.vocabulary().find(*content);
  if (!id) {
    log::warning("{}: {} \"{}\" is not in the vocabulary and stays unknown", where, name, *content);
    return std::nullopt;
  }
  AddedToken token;
  token.content = *content;
  token.id = *id;
  token.special = true;
  parts.added_tokens.push_back(std::move(token));
  return id;
}

}  // namespace

Tokenizer load_tokenizer_json(const io::JsonValue& tokenizer_json, const TokenizerConfig& config,
                              std::string_view where) {
  TokenizerParts parts = parse_tokenizer_json(tokenizer_json, where);
  add_missing_tokens(parts, config, where);
  parts.bos_id = special_id(parts, config.bos_token, "bos_token", where);
  parts.eos_id = special_id(parts, config.eos_token, "eos_token", where);
  parts.pad_id = special_id(parts, config.pad_token, "pad_token", where);
  if (config.unk_token) parts.unk_id = special_id(parts, config.unk_token, "unk_token", where);
  return Tokenizer(std::move(parts));
}

LoadedTokenizer load_tokenizer_directory(const std::string& directory) {
  const std::filesystem::path base(directory);
  const std::string tokenizer_path = base / "tokenizer.json";
  if (!std::filesystem::exists(tokenizer_path)) {
    throw Error(ErrorKind::kInput,
                "{}: there is no tokenizer.json; other forms (tokenizer.model, vocab.json with merges.txt) must "
                "be converted first: AutoTokenizer.from_pretrained(DIR).save_pretrained(DIR) writes one",
                directory);
  }
  TokenizerConfig config;
  const std::string config_path = base / "tokenizer_config.json";
  if (std::filesystem::exists(config_path))
    config = parse_tokenizer_config(io::parse_json_file(config_path), config_path);
  const std::string template_path = base / "chat_template.jinja";
  if (std::filesystem::exists(template_path)) {
    std::erase_if(config.chat_templates, [](const ChatTemplateSource& t) { return t.name == "default"; });
    config.chat_templates.insert(config.chat_templates.begin(),
                                 {"default", replace_invalid_utf8(io::read_file(template_path, kMaxTemplateBytes))});
  }
  Tokenizer tokenizer = load_tokenizer_json(io::parse_json_file(tokenizer_path), config, tokenizer_path);
  return {std::move(tokenizer), std::move(config)};
}

}  // namespace tokenmill::text
