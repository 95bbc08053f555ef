#include "engine/text/pre_tokenizer.h"

#include <algorithm>

#include "engine/text/unicode.h"

namespace tokenmill::text {
namespace {

struct Section {
  Span span;
  bool is_match;
};

/// Appends the pieces that the behavior makes of matches and gaps, which cover the text from left to right. Empty
/// pieces are dropped. (A match that follows another match starts a piece of its own under the two merging behaviors.)
void merge_sections(std::vector<Section>& sections, SplitBehavior behavior, std::vector<Span>& out) {
  const auto emit = [&out](Span span) {
    if (span.begin != span.end) out.push_back(span);
  };
  if (behavior == SplitBehavior::kIsolated || behavior == SplitBehavior::kRemoved) {
    for (const Section& s : sections) {
      if (!s.is_match || behavior == SplitBehavior::kIsolated) emit(s.span);
    }
    return;
  }
  const bool backwards = behavior == SplitBehavior::kMergedWithNext;
  if (backwards) std::reverse(sections.begin(), sections.end());
  std::vector<Span> merged;
  bool previous_match = false;
  for (const Section& s : sections) {
    const bool joins =
        behavior == SplitBehavior::kContiguous ? s.is_match == previous_match : s.is_match && !previous_match;
    if (joins && !merged.empty()) {
      merged.back().begin = std::min(merged.back().begin, s.span.begin);
      merged.back().end = std::max(merged.back().end, s.span.end);
    } else {
      merged.push_back(s.span);
    }
    previous_match = s.is_match;
  }
  if (backwards) std::reverse(merged.begin(), merged.end());
  for (const Span& span : merged) emit(span);
}

/// Splits one piece by the matches that for_each_match reports (offsets inside the piece).
template <typename ForEachMatch>
void split_piece(Span piece, SplitBehavior behavior, bool invert, ForEachMatch&& for_each_match,
                 std::vector<Section>& sections, std::vector<Span>& out) {
  sections.clear();
  size_t covered = piece.begin;
  for_each_match([&](Span match) {
    const Span absolute{piece.begin + match.begin, piece.begin + match.end};
    if (covered != absolute.begin) sections.push_back({{covered, absolute.begin}, invert});
    sections.push_back({absolute, !invert});
    covered = absolute.end;
  });
  if (covered != piece.end) sections.push_back({{covered, piece.end}, invert});
  merge_sections(sections, behavior, out);
}

template <typename MatchesOf>
std::vector<Span> split_all(const std::string& text, const std::vector<Span>& pieces, SplitBehavior behavior,
                            bool invert, MatchesOf&& matches_of) {
  std::vector<Span> out;
  out.reserve(text.size() / 4 + 1);
  std::vector<Section> sections;
  for (const Span& piece : pieces) {
    const std::string_view view = std::string_view(text).substr(piece.begin, piece.end - piece.begin);
    split_piece(
        piece, behavior, invert, [&](auto&& visit) { matches_of(view, visit); }, sections, out);
  }
  return out;
}

void apply_step(const PreTokenizer::Split& step, std::string& text, std::vector<Span>& pieces, bool) {
  pieces = split_all(text, pieces, step.behavior, step.invert,
                     [&](std::string_view view, auto&& visit) { step.pattern.for_each_match(view, visit); });
}

void apply_step(const PreTokenizer::CharacterSplit& step, std::string& text, std::vector<Span>& pieces, bool) {
  pieces = split_all(text, pieces, step.behavior, /*invert=*/false, [&](std::string_view view, auto&& visit) {
    for (size_t at = 0; at < view.size();) {
      const Character c = first_character(view.substr(at));
      if (step.matches(c.code)) visit(Span{at, at + c.bytes});
      at += c.bytes;
    }
  });
}

/// Builds the text anew, piece by piece; rewrite appends one piece's new text.
template <typename Rewrite>
void rewrite_pieces(std::string& text, std::vector<Span>& pieces, Rewrite&& rewrite) {
  std::string out;
  out.reserve(text.size() + text.size() / 8 + 16);
  for (Span& piece : pieces) {
    const size_t begin = out.size();
    rewrite(piece, std::string_view(text).substr(piece.begin, piece.end - piece.begin), out);
    piece = {begin, out.size()};
  }
  text = std::move(out);
}

void apply_step(const PreTokenizer::Metaspace& step, std::string& text, std::vector<Span>& pieces, bool at_start) {
  const std::string& mark = step.replacement;
  rewrite_pieces(text, pieces, [&](Span piece, std::string_view view, std::string& out) {
    const bool wanted = step.prepend_scheme == PrependScheme::kAlways ||
                        (step.prepend_scheme == PrependScheme::kFirst && at_start && piece.begin == 0);
    if (wanted && !view.starts_with(' ') && !view.starts_with(mark)) out += mark;
    for (const char c : view) {
      if (c == ' ') {
        out += mark;
      } else {
        out += c;
      }
    }
  });
  if (!step.split) return;
  pieces = split_all(
      text, pieces, SplitBehavior::kMergedWithNext, /*invert=*/false, [&](std::string_view view, auto&& visit) {
        for (size_t at = view.find(mark); at != std::string_view::npos; at = view.find(mark, at + mark.size())) {
          visit(Span{at, at + mark.size()});
        }
      });
}

void apply_step(const PreTokenizer::PrefixSpace&, std::string& text, std::vector<Span>& pieces, bool) {
  rewrite_pieces(text, pieces, [](Span, std::string_view view, std::string& out) {
    if (!view.starts_with(' ')) out += ' ';
    out.append(view);
  });
}

}  // namespace

void PreTokenizer::apply(std::string& text, std::vector<Span>& pieces, bool at_start) const {
  pieces.clear();
  if (!text.empty()) pieces.push_back({0, text.size()});
  for (const Step& step : steps_) {
    std::visit([&](const auto& s) { apply_step(s, text, pieces, at_start); }, step);
  }
}

}  // namespace tokenmill::text
