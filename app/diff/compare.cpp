#include "app/diff/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "io/utf8.h"

namespace tokenmill::diff {
namespace {

using io::JsonValue;
constexpr size_t kShownBytes = 60;
constexpr size_t kShownBefore = 20;  // of a text in front of where it differs

/// What stands around a value: enough to know what its number means.
struct Place {
  std::string field;
  std::string_view name;     // nearest member
  bool in_logprobs = false;  // inside a member of logprobs
};

bool is_logprob(const Place& place) {
  static constexpr std::array<std::string_view, 10> kOthers = {
      "token_id", "id", "rank", "bytes", "token", "text_offset", "token_ids", "ranks", "start_indices", "end_indices"};
  if (place.name == "cumulative_logprob" || place.name == "logprob") return true;
  return place.in_logprobs && std::find(kOthers.begin(), kOthers.end(), place.name) == kOthers.end();
}

bool is_ignored(std::string_view field, bool openai) {
  static constexpr std::array<std::string_view, 5> kOpenAi = {"id", "response.request_id", "response.body.id",
                                                              "response.body.created", "response.body.model"};
  if (!openai) return field == "row";
  return std::find(kOpenAi.begin(), kOpenAi.end(), field) != kOpenAi.end();
}

/// An error's message without "FILE:LINE: ".
std::string_view without_place(std::string_view message) {
  for (size_t colon = message.find(": "); colon != message.npos; colon = message.find(": ", colon + 1)) {
    if (colon == 0) continue;
    const size_t mark = message.find_last_not_of("0123456789", colon - 1);
    if (mark != message.npos && mark + 1 < colon && message[mark] == ':') return message.substr(colon + 2);
  }
  return message;
}

bool is_message(std::string_view field) { return field == "error.message" || field == "response.body.error.message"; }

size_t character_start(std::string_view text, size_t at) {
  while (at > 0 && at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

std::string shown_text(std::string_view text, size_t differs_at) {
  const size_t begin = differs_at > kShownBefore ? character_start(text, differs_at - kShownBefore) : 0;
  const size_t end = character_start(text, std::min(text.size(), begin + kShownBytes));
  std::string out = begin > 0 ? "..." : "";
  io::append_json_string(out, text.substr(begin, end - begin));
  return end < text.size() ? out + "..." : out;
}

std::string shown(const JsonValue* value) {
  if (value == nullptr) return "absent";
  if (value->is_string()) return shown_text(value->as_string(), 0);
  const std::string text = io::to_json(*value);
  return text.size() <= kShownBytes ? text : text.substr(0, character_start(text, kShownBytes)) + "...";
}

int64_t num_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; });
}

class Walk {
 public:
  Walk(bool openai, double tolerance) : openai_(openai), tolerance_(tolerance) {}

  RowComparison compare(const JsonValue& a, const JsonValue& b) {
    visit({}, a, b);
    RowComparison out;
    out.difference = content_ ? std::move(content_) : std::move(logprob_);
    if (content_differs_) return out;  // logprobs of other tokens say nothing
    out.max_logprob_distance = max_distance_;
    out.num_logprobs = num_logprobs_;
    return out;
  }

 private:
  void differ(const Place& place, const JsonValue* a, const JsonValue* b, std::string note = "") {
    content_differs_ = true;
    if (!content_) content_ = Difference{place.field, shown(a), shown(b), std::move(note)};
  }

  void visit(const Place& place, const JsonValue& a, const JsonValue& b) {
    if (content_differs_ || is_ignored(place.field, openai_)) return;
    if (a.kind() != b.kind()) return differ(place, &a, &b);
    switch (a.kind()) {
      case JsonValue::Kind::kObject:
        return visit_members(place, a, b);
      case JsonValue::Kind::kArray:
        return visit_items(place, a, b);
      case JsonValue::Kind::kString:
        return visit_text(place, a, b);
      case JsonValue::Kind::kNumber:
        if (is_logprob(place)) return visit_logprob(place, a, b);
        [[fallthrough]];
      default:
        if (!(a == b)) differ(place, &a, &b);
    }
  }

  void visit_members(const Place& place, const JsonValue& a, const JsonValue& b) {
    const auto inside = [&](const std::string& name) {
      return Place{
          place.field.empty() ? name : place.field + "." + name, name,
          place.in_logprobs || name == "logprobs" || name == "prompt_logprobs" || name == "prompt_token_id_logprobs"};
    };
    for (const auto& [name, value] : a.members()) {
      const JsonValue* other = b.find(name);
      const Place member = inside(name);
      if (other != nullptr)
        visit(member, value, *other);
      else if (!is_ignored(member.field, openai_))
        differ(member, &value, nullptr);
    }
    for (const auto& [name, value] : b.members()) {
      const Place member = inside(name);
      if (a.find(name) == nullptr && !is_ignored(member.field, openai_)) differ(member, nullptr, &value);
    }
  }

  void visit_items(const Place& place, const JsonValue& a, const JsonValue& b) {
    const size_t count = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < count; ++i)
      visit({fmt::format("{}[{}]", place.field, i), place.name, place.in_logprobs}, a.items()[i], b.items()[i]);
    if (a.items().size() == b.items().size()) return;
    const auto item = [&](const JsonValue& list) {
      return count < list.items().size() ? &list.items()[count] : nullptr;
    };
    differ({fmt::format("{}[{}]", place.field, count), place.name, place.in_logprobs}, item(a), item(b),
           fmt::format("{} and {} items", a.items().size(), b.items().size()));
  }

  void visit_text(const Place& place, const JsonValue& a, const JsonValue& b) {
    std::string_view left = a.as_string(), right = b.as_string();
    if (is_message(place.field)) {
      left = without_place(left);
      right = without_place(right);
    }
    if (left == right || content_differs_) return;
    const auto at = std::mismatch(left.begin(), left.end(), right.begin(), right.end());
    const auto bytes = character_start(left, static_cast<size_t>(at.first - left.begin()));
    content_differs_ = true;
    content_ = Difference{place.field, shown_text(left, bytes), shown_text(right, bytes),
                          fmt::format("different from character {} on", num_characters(left.substr(0, bytes)) + 1)};
  }

  void visit_logprob(const Place& place, const JsonValue& a, const JsonValue& b) {
    const double distance = std::fabs(a.as_double() - b.as_double());
    ++num_logprobs_;
    max_distance_ = std::max(max_distance_, distance);
    if (distance <= tolerance_ || logprob_) return;
    logprob_ = Difference{place.field, shown(&a), shown(&b), fmt::format("{:.3g} apart", distance)};
  }

  bool openai_;
  double tolerance_;
  std::optional<Difference> content_, logprob_;
  bool content_differs_ = false;
  double max_distance_ = 0;
  int64_t num_logprobs_ = 0;
};

}  // namespace

bool is_openai_result(const JsonValue& row) {
  return row.find("custom_id") != nullptr && row.find("response") != nullptr;
}

RowComparison compare_rows(const JsonValue& a, const JsonValue& b, double logprob_tolerance) {
  const bool openai = is_openai_result(a);
  if (openai != is_openai_result(b)) {
    const auto format = [](bool is_openai) { return is_openai ? "OpenAI batch" : "native"; };
    return {.difference = Difference{"format", format(openai), format(!openai), ""}};
  }
  return Walk(openai, logprob_tolerance).compare(a, b);
}

std::string without_positions(const std::string& field) {
  std::string out;
  bool inside = false;
  for (const char c : field) {
    if (c == ']') inside = false;
    if (!inside) out += c;
    if (c == '[') inside = true;
  }
  return out;
}

}  // namespace tokenmill::diff
