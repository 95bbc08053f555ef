#include "engine/text/normalizer.h"

#include <utility>

namespace tokenmill::text {
namespace {

std::string apply_step(UnicodeForm form, std::string text) { return normalize(text, form); }

std::string apply_step(const Normalizer::Prepend& step, std::string text) {
  return text.empty() ? std::move(text) : step.text + text;
}

std::string apply_step(const Normalizer::Strip& step, std::string text) {
  std::string_view rest = text;
  while (step.left && !rest.empty()) {
    const Character c = first_character(rest);
    if (!is_white_space(c.code)) break;
    rest.remove_prefix(c.bytes);
  }
  while (step.right && !rest.empty()) {
    const Character c = last_character(rest);
    if (!is_white_space(c.code)) break;
    rest.remove_suffix(c.bytes);
  }
  return std::string(rest);
}

std::string apply_step(const Normalizer::Lowercase&, std::string text) {
  std::string out;
  out.reserve(text.size());
  for (std::string_view rest = text; !rest.empty();) {
    const Character c = first_character(rest);
    append_lowercase(out, c.code);
    rest.remove_prefix(c.bytes);
  }
  return out;
}

std::string apply_step(const Normalizer::StripAccents&, std::string text) {
  std::string out;
  out.reserve(text.size());
  for (std::string_view rest = text; !rest.empty();) {
    const Character c = first_character(rest);
    if (!is_mark(c.code)) out.append(rest.substr(0, c.bytes));
    rest.remove_prefix(c.bytes);
  }
  return out;
}

std::string apply_step(const Replacement& step, std::string text) { return step.apply(text); }

}  // namespace

Replacement Replacement::of_text(std::string from, std::string to) { return {std::move(from), std::move(to)}; }
Replacement Replacement::of_pattern(Regex from, std::string to) { return {std::move(from), std::move(to)}; }

std::string Replacement::apply(std::string_view text) const {
  std::string out;
  size_t copied = 0;
  if (const auto* from = std::get_if<std::string>(&from_)) {
    if (from->empty()) return std::string(text);
    for (size_t at = text.find(*from); at != std::string_view::npos; at = text.find(*from, copied)) {
      out.append(text.substr(copied, at - copied)).append(to_);
      copied = at + from->size();
    }
  } else {
    std::get<Regex>(from_).for_each_match(text, [&](Span match) {
      out.append(text.substr(copied, match.begin - copied)).append(to_);
      copied = match.end;
    });
  }
  return out.append(text.substr(copied));
}

std::string Normalizer::apply(std::string_view text) const {
  std::string out(text);
  for (const Step& step : steps_) {
    out = std::visit([&](const auto& s) { return apply_step(s, std::move(out)); }, step);
  }
  return out;
}

}  // namespace tokenmill::text
