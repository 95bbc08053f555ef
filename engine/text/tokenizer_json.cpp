#include "engine/text/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/text/byte_level.h"
#include "engine/text/json_fields.h"
#include "kernels/core/error.h"
#include "kernels/core/log.h"

namespace tokenmill::text {
namespace {

using io::JsonValue;

std::string field_of(std::string_view where, std::string_view name) { return fmt::format("{}: {}", where, name); }

Vocabulary parse_vocabulary(const JsonValue& model, std::string_view where) {
  const JsonValue& vocab = required_field(model, "vocab", where);
  if (!vocab.is_object()) refuse_value(field_of(where, "vocab"), vocab.kind_name(), "an object of token: id");
  std::vector<std::pair<std::string, int64_t>> entries;
  entries.reserve(vocab.members().size());
  for (const auto& [token, id] : vocab.members()) {
    if (!id.is_number()) refuse_value(fmt::format("{}: vocab[\"{}\"]", where, token), id.kind_name(), "an id");
    entries.emplace_back(token, integer_value(id, Vocabulary::kMaxSize, where));
  }
  return Vocabulary::build(std::move(entries), field_of(where, "vocab"));
}

/// A merge in either notation: "a b" or ["a", "b"].
std::pair<std::string_view, std::string_view> parse_pair(const JsonValue& json, size_t index, std::string_view where) {
  if (json.is_string()) {
    const std::string_view text = json.as_string();
    const size_t space = text.find(' ');
    if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  } else if (json.is_array() && json.items().size() == 2 && json.items()[0].is_string() &&
             json.items()[1].is_string()) {
    return {json.items()[0].as_string(), json.items()[1].as_string()};
  }
  throw Error(ErrorKind::kInput, "{}: merges[{}] is {}; allowed: \"a b\" or [\"a\", \"b\"]", where, index,
              json.is_string() ? "\"" + json.as_string() + "\"" : "no pair of strings");
}

std::vector<Merge> parse_merges(const JsonValue& model, const Vocabulary& vocabulary, std::string_view where) {
  const auto& items = array_field(model, "merges", where);
  std::vector<Merge> merges;
  merges.reserve(items.size());
  const auto id_of = [&](std::string_view token, size_t index) {
    const auto id = vocabulary.find(token);
    if (!id)
      throw Error(ErrorKind::kInput, "{}: merges[{}] needs the token \"{}\", which vocab lacks", where, index, token);
    return *id;
  };
  for (size_t i = 0; i < items.size(); ++i) {
    if (items[i].is_string() && items[i].as_string().starts_with("#version")) continue;
    const auto [left, right] = parse_pair(items[i], i, where);
    const std::string joined = std::string(left).append(right);
    merges.push_back({id_of(left, i), id_of(right, i), static_cast<uint32_t>(merges.size()), id_of(joined, i)});
  }
  return merges;
}

void refuse_affix(const JsonValue& model, std::string_view name, std::string_view where) {
  const JsonValue* value = optional_field(model, name, where);
  if (value == nullptr || (value->is_string() && value->as_string().empty())) return;
  refuse_value(field_of(where, name), io::to_json(*value), "null (marks inside words are not supported)");
}

/// Added tokens whose content the model knows have the model's id, whatever the file says (tokenizers does the same).
void settle_added_ids(std::vector<AddedToken>& tokens, const Vocabulary& vocabulary, std::string_view where) {
  for (AddedToken& token : tokens) {
    const auto known = vocabulary.find(token.content);
    if (known && *known != token.id) {
      log::warning("{}: added token \"{}\" has id {}, the vocabulary says {}: taking {}", where, token.content,
                   token.id, *known, *known);
      token.id = *known;
    } else if (!known && vocabulary.contains(token.id)) {
      throw Error(ErrorKind::kInput, "{}: added token \"{}\" has id {}, which is the vocabulary's \"{}\"", where,
                  token.content, token.id, vocabulary.token(token.id));
    }
  }
}

void check_template(const Template& around, const std::vector<AddedToken>& added, const Vocabulary& vocabulary,
                    std::string_view where) {
  for (const auto* ids : {&around.before, &around.after}) {
    for (const int32_t id : *ids) {
      const bool known = vocabulary.contains(id) ||
                         std::any_of(added.begin(), added.end(), [&](const AddedToken& t) { return t.id == id; });
      if (!known) refuse_value(fmt::format("{}: special_tokens", where), fmt::format("id {}", id), "ids of tokens");
    }
  }
}

}  // namespace

BpeModel parse_bpe(const JsonValue& json, bool byte_level, std::string_view where) {
  // "type" is absent in files of old versions; a BPE model is known by its merges.
  const JsonValue* type = optional_field(json, "type", where);
  if (type != nullptr && (!type->is_string() || type->as_string() != "BPE")) {
    refuse_type(where, type->is_string() ? type->as_string() : type->kind_name(), "BPE");
  }
  if (type == nullptr && optional_field(json, "merges", where) == nullptr) refuse_type(where, "(none)", "BPE");
  if (const JsonValue* dropout = optional_field(json, "dropout", where);
      dropout != nullptr && !(dropout->is_number() && dropout->as_double() == 0.0)) {
    refuse_value(field_of(where, "dropout"), io::to_json(*dropout),
                 "null or 0: the same text must always give the same ids");
  }
  refuse_affix(json, "continuing_subword_prefix", where);
  refuse_affix(json, "end_of_word_suffix", where);

  BpeOptions options;
  options.byte_level = byte_level;
  options.ignore_merges = bool_field(json, "ignore_merges", false, where);
  options.byte_fallback = bool_field(json, "byte_fallback", false, where);
  options.fuse_unk = bool_field(json, "fuse_unk", false, where);
  Vocabulary vocabulary = parse_vocabulary(json, where);
  if (optional_field(json, "unk_token", where) != nullptr) {
    const std::string unk = string_field(json, "unk_token", where);
    options.unk_id = vocabulary.find(unk);
    if (!options.unk_id) refuse_value(field_of(where, "unk_token"), "\"" + unk + "\"", "a token of vocab");
  }
  const auto& characters = byte_characters();
  if (byte_level && options.byte_fallback && !std::all_of(characters.begin(), characters.end(), [&](const auto& c) {
        return vocabulary.find(c).has_value();
      })) {
    refuse_value(field_of(where, "byte_fallback"), "true",
                 "false where ByteLevel is used and vocab lacks some of its characters");
  }
  const std::vector<Merge> merges = parse_merges(json, vocabulary, where);
  return BpeModel(std::move(vocabulary), merges, options);
}

AddedToken parse_added_token_fields(const JsonValue& json, std::string_view where) {
  AddedToken token;
  token.content = string_field(json, "content", where);
  token.special = bool_field(json, "special", false, where);
  token.normalized = bool_field(json, "normalized", !token.special, where);
  token.lstrip = bool_field(json, "lstrip", false, where);
  token.rstrip = bool_field(json, "rstrip", false, where);
  token.single_word = bool_field(json, "single_word", false, where);
  return token;
}

std::vector<AddedToken> parse_added_tokens(const JsonValue& json, std::string_view where) {
  std::vector<AddedToken> tokens;
  if (json.is_null()) return tokens;
  if (!json.is_array()) refuse_value(where, json.kind_name(), "an array of added tokens");
  for (const JsonValue& item : json.items()) {
    AddedToken token = parse_added_token_fields(item, where);
    token.id = static_cast<int32_t>(integer_value(required_field(item, "id", where), Vocabulary::kMaxSize,
                                                  fmt::format("{}: id of \"{}\"", where, token.content)));
    tokens.push_back(std::move(token));
  }
  return tokens;
}

TokenizerParts parse_tokenizer_json(const JsonValue& json, std::string_view where) {
  const auto section = [&](std::string_view name) -> const JsonValue& {
    static const JsonValue null;
    const JsonValue* value = optional_field(json, name, where);
    return value == nullptr ? null : *value;
  };
  PreTokenizerParts pre = parse_pre_tokenizer(section("pre_tokenizer"), field_of(where, "pre_tokenizer"));
  std::vector<AddedToken> added = parse_added_tokens(section("added_tokens"), field_of(where, "added_tokens"));
  BpeModel model = parse_bpe(required_field(json, "model", where), pre.byte_level, field_of(where, "model"));
  settle_added_ids(added, model.vocabulary(), field_of(where, "added_tokens"));
  Template around = parse_post_processor(section("post_processor"), field_of(where, "post_processor"));
  check_template(around, added, model.vocabulary(), field_of(where, "post_processor"));
  const std::optional<int32_t> unk_id = model.options().unk_id;
  return TokenizerParts{.added_tokens = std::move(added),
                        .normalizer = parse_normalizer(section("normalizer"), field_of(where, "normalizer")),
                        .pre_tokenizer = std::move(pre.steps),
                        .model = std::move(model),
                        .before = std::move(around.before),
                        .after = std::move(around.after),
                        .decoder = parse_decoder(section("decoder"), field_of(where, "decoder")),
                        .bos_id = {},
                        .eos_id = {},
                        .pad_id = {},
                        .unk_id = unk_id};
}

}  // namespace tokenmill::text
