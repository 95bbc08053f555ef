// Normalizers, pre-tokenizers, post-processors and decoders of a tokenizer.json.
#include <fmt/format.h>

#include "engine/text/json_fields.h"
#include "engine/text/tokenizer_json.h"
#include "engine/text/unicode.h"
#include "kernels/core/error.h"

namespace tokenmill::text {
namespace {

using io::JsonValue;

constexpr int64_t kMaxStrip = 1 << 20;
// Words, and runs of what is neither word nor white space; "word" as in Unicode's TR 18 (not quite the \w of Split).
constexpr std::string_view kWhitespacePattern =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}]+|[^\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200C}\x{200D}\s]+)";

std::string at_type(std::string_view where, std::string_view type) { return fmt::format("{} {}", where, type); }

/// {"String": "..."} or {"Regex": "..."}.
struct Pattern {
  std::string text;
  bool is_regex;
};

Pattern parse_pattern(const JsonValue& json, std::string_view where) {
  const JsonValue& pattern = required_field(json, "pattern", where);
  if (optional_field(pattern, "String", where) != nullptr) return {string_field(pattern, "String", where), false};
  if (optional_field(pattern, "Regex", where) != nullptr) return {string_field(pattern, "Regex", where), true};
  refuse_value(fmt::format("{}: pattern", where), io::to_json(pattern), "{\"String\": ...} or {\"Regex\": ...}");
}

Replacement parse_replacement(const JsonValue& json, std::string_view where) {
  Pattern pattern = parse_pattern(json, where);
  std::string content = string_field(json, "content", where);
  if (pattern.is_regex) return Replacement::of_pattern(Regex(pattern.text, where), std::move(content));
  if (pattern.text.empty())
    refuse_value(fmt::format("{}: pattern", where), "an empty string", "at least one character");
  return Replacement::of_text(std::move(pattern.text), std::move(content));
}

/// A field that must hold exactly one character.
std::string character_field(const JsonValue& json, std::string_view name, std::string_view where) {
  std::string text = string_field(json, name, where);
  if (text.empty() || first_character(text).bytes != text.size()) {
    refuse_value(fmt::format("{}: {}", where, name), "\"" + text + "\"", "one character");
  }
  return text;
}

SplitBehavior parse_behavior(const JsonValue& json, std::string_view where) {
  const std::string name = string_field(json, "behavior", where);
  if (name == "Removed") return SplitBehavior::kRemoved;
  if (name == "Isolated") return SplitBehavior::kIsolated;
  if (name == "MergedWithPrevious") return SplitBehavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return SplitBehavior::kMergedWithNext;
  if (name == "Contiguous") return SplitBehavior::kContiguous;
  refuse_value(fmt::format("{}: behavior", where), "\"" + name + "\"",
               "Removed, Isolated, MergedWithPrevious, MergedWithNext, Contiguous");
}

PrependScheme parse_prepend_scheme(const JsonValue& json, std::string_view where) {
  const bool prefix = bool_field(json, "add_prefix_space", true, where);  // the form of old versions
  if (optional_field(json, "prepend_scheme", where) == nullptr)
    return prefix ? PrependScheme::kAlways : PrependScheme::kNever;
  const std::string name = string_field(json, "prepend_scheme", where);
  if (!prefix && name != "never")
    refuse_value(fmt::format("{}: prepend_scheme", where), name, "never, as add_prefix_space is false");
  if (name == "always") return PrependScheme::kAlways;
  if (name == "first") return PrependScheme::kFirst;
  if (name == "never") return PrependScheme::kNever;
  refuse_value(fmt::format("{}: prepend_scheme", where), "\"" + name + "\"", "always, first, never");
}

void add_normalizer(Normalizer& out, const JsonValue& json, std::string_view where) {
  const std::string type = type_of(json, where);
  const std::string here = at_type(where, type);
  if (type == "Sequence") {
    for (const JsonValue& item : array_field(json, "normalizers", here)) add_normalizer(out, item, where);
  } else if (type == "NFC") {
    out.add(UnicodeForm::kNfc);
  } else if (type == "NFD") {
    out.add(UnicodeForm::kNfd);
  } else if (type == "NFKC") {
    out.add(UnicodeForm::kNfkc);
  } else if (type == "NFKD") {
    out.add(UnicodeForm::kNfkd);
  } else if (type == "Lowercase") {
    out.add(Normalizer::Lowercase{});
  } else if (type == "StripAccents") {
    out.add(Normalizer::StripAccents{});
  } else if (type == "Strip") {
    out.add(Normalizer::Strip{bool_field(json, "strip_left", true, here), bool_field(json, "strip_right", true, here)});
  } else if (type == "Prepend") {
    out.add(Normalizer::Prepend{string_field(json, "prepend", here)});
  } else if (type == "Replace") {
    out.add(parse_replacement(json, here));
  } else {
    refuse_type(where, type, "Sequence, NFC, NFD, NFKC, NFKD, Lowercase, StripAccents, Strip, Prepend, Replace");
  }
}

void add_pre_tokenizer(PreTokenizerParts& out, const JsonValue& json, std::string_view where) {
  const std::string type = type_of(json, where);
  const std::string here = at_type(where, type);
  if (type == "Sequence") {
    for (const JsonValue& item : array_field(json, "pretokenizers", here)) add_pre_tokenizer(out, item, where);
    return;
  }
  if (out.byte_level) {
    throw Error(ErrorKind::kInput, "{}: {} stands behind ByteLevel; ByteLevel must be the last pre-tokenizer", where,
                type);
  }
  if (type == "ByteLevel") {
    if (bool_field(json, "add_prefix_space", true, here)) out.steps.add(PreTokenizer::PrefixSpace{});
    if (bool_field(json, "use_regex", true, here)) {
      out.steps.add(PreTokenizer::Split{Regex(kGpt2Pattern, here), SplitBehavior::kIsolated, false});
    }
    out.byte_level = true;
  } else if (type == "Split") {
    const Pattern pattern = parse_pattern(json, here);
    out.steps.add(PreTokenizer::Split{Regex(pattern.is_regex ? pattern.text : escape_regex(pattern.text), here),
                                      parse_behavior(json, here), bool_field(json, "invert", false, here)});
  } else if (type == "Digits") {
    out.steps.add(PreTokenizer::CharacterSplit{&is_numeric, bool_field(json, "individual_digits", false, here)
                                                                ? SplitBehavior::kIsolated
                                                                : SplitBehavior::kContiguous});
  } else if (type == "Punctuation") {
    const bool given = optional_field(json, "behavior", here) != nullptr;
    out.steps.add(
        PreTokenizer::CharacterSplit{&is_punctuation, given ? parse_behavior(json, here) : SplitBehavior::kIsolated});
  } else if (type == "WhitespaceSplit") {
    out.steps.add(PreTokenizer::CharacterSplit{&is_white_space, SplitBehavior::kRemoved});
  } else if (type == "Whitespace") {
    out.steps.add(PreTokenizer::Split{Regex(kWhitespacePattern, here), SplitBehavior::kRemoved, /*invert=*/true});
  } else if (type == "Metaspace") {
    out.steps.add(PreTokenizer::Metaspace{character_field(json, "replacement", here), parse_prepend_scheme(json, here),
                                          bool_field(json, "split", true, here)});
  } else {
    refuse_type(where, type, "Sequence, ByteLevel, Split, Digits, Punctuation, Whitespace, WhitespaceSplit, Metaspace");
  }
}

void add_decoder(Decoder& out, const JsonValue& json, std::string_view where) {
  const std::string type = type_of(json, where);
  const std::string here = at_type(where, type);
  if (type == "Sequence") {
    for (const JsonValue& item : array_field(json, "decoders", here)) add_decoder(out, item, where);
  } else if (type == "ByteLevel") {
    out.add(Decoder::ByteLevel{}, where);
  } else if (type == "ByteFallback") {
    out.add(Decoder::ByteFallback{}, where);
  } else if (type == "Fuse") {
    out.add(Decoder::Fuse{}, where);
  } else if (type == "Replace") {
    out.add(parse_replacement(json, here), where);
  } else if (type == "Strip") {
    const auto count = [&](std::string_view name) {
      const JsonValue* value = optional_field(json, name, here);
      return value == nullptr
                 ? size_t{0}
                 : static_cast<size_t>(integer_value(*value, kMaxStrip, fmt::format("{}: {}", here, name)));
    };
    out.add(Decoder::Strip{character_field(json, "content", here), count("start"), count("stop")}, where);
  } else if (type == "Metaspace") {
    out.add(Decoder::Metaspace{character_field(json, "replacement", here),
                               parse_prepend_scheme(json, here) != PrependScheme::kNever},
            where);
  } else {
    refuse_type(where, type, "Sequence, ByteLevel, ByteFallback, Fuse, Replace, Strip, Metaspace");
  }
}

/// The ids of a TemplateProcessing's "single" form, which holds the prompt ("A") exactly once.
Template parse_template(const JsonValue& json, std::string_view where) {
  Template out;
  bool behind = false;
  for (const JsonValue& item : array_field(json, "single", where)) {
    if (const JsonValue* sequence = optional_field(item, "Sequence", where)) {
      const std::string id = string_field(*sequence, "id", where);
      if (id != "A" || behind)
        refuse_value(fmt::format("{}: single", where), "a template with " + id + " again", "A once");
      behind = true;
      continue;
    }
    const std::string name = string_field(required_field(item, "SpecialToken", where), "id", where);
    const JsonValue& token = required_field(required_field(json, "special_tokens", where), name, where);
    for (const JsonValue& id : array_field(token, "ids", where)) {
      (behind ? out.after : out.before).push_back(static_cast<int32_t>(integer_value(id, Vocabulary::kMaxSize, where)));
    }
  }
  if (!behind) refuse_value(fmt::format("{}: single", where), "a template without A", "A once");
  return out;
}

}  // namespace

Normalizer parse_normalizer(const JsonValue& json, std::string_view where) {
  Normalizer out;
  if (!json.is_null()) add_normalizer(out, json, where);
  return out;
}

PreTokenizerParts parse_pre_tokenizer(const JsonValue& json, std::string_view where) {
  PreTokenizerParts out;
  if (!json.is_null()) add_pre_tokenizer(out, json, where);
  return out;
}

Decoder parse_decoder(const JsonValue& json, std::string_view where) {
  Decoder out;
  if (json.is_null()) {
    out.add(Decoder::Join{}, where);
  } else {
    add_decoder(out, json, where);
  }
  return out;
}

Template parse_post_processor(const JsonValue& json, std::string_view where) {
  if (json.is_null()) return {};
  const std::string type = type_of(json, where);
  if (type == "ByteLevel") return {};  // moves offsets only
  if (type == "TemplateProcessing") return parse_template(json, at_type(where, type));
  if (type != "Sequence") refuse_type(where, type, "Sequence, ByteLevel, TemplateProcessing");
  Template out;
  for (const JsonValue& item : array_field(json, "processors", where)) {
    const Template inner = parse_post_processor(item, where);
    out.before.insert(out.before.begin(), inner.before.begin(), inner.before.end());
    out.after.insert(out.after.end(), inner.after.begin(), inner.after.end());
  }
  return out;
}

}  // namespace tokenmill::text
