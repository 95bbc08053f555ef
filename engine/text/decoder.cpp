#include "engine/text/decoder.h"

#include <array>
#include <optional>

#include "engine/text/byte_level.h"
#include "engine/text/unicode.h"
#include "io/utf8.h"
#include "kernels/core/error.h"

namespace tokenmill::text {
namespace {

/// True when bytes could still become a character: a proper prefix of one.
bool is_incomplete(std::string_view bytes, const io::Utf8Step& step) {
  const auto lead = static_cast<unsigned char>(bytes[0]);
  if (step.valid || step.bytes != bytes.size() || lead < 0xC2 || lead > 0xF4) return false;
  const size_t wanted = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return bytes.size() < wanted;
}

/// Moves what is decided from the front of held into text. An invalid part becomes one U+FFFD, or one for each of its
/// bytes.
void release_characters(std::string& held, bool one_per_byte, std::string& text) {
  std::string_view rest = held;
  while (!rest.empty()) {
    const io::Utf8Step step = io::utf8_step(rest);
    if (is_incomplete(rest, step)) break;
    if (step.valid) {
      text.append(rest.substr(0, step.bytes));
    } else {
      for (size_t i = 0; i < (one_per_byte ? step.bytes : 1); ++i) text.append(kReplacementCharacter);
    }
    rest.remove_prefix(step.bytes);
  }
  held.erase(0, held.size() - rest.size());
}

/// The byte of a token spelled <0xNN>.
std::optional<char> byte_of(std::string_view token) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return std::nullopt;
  const int high = digit(token[3]);
  const int low = digit(token[4]);
  if (high < 0 || low < 0) return std::nullopt;
  return static_cast<char>(high * 16 + low);
}

std::string replace_mark(std::string_view text, const std::string& mark, std::string_view by) {
  return Replacement::of_text(mark, std::string(by)).apply(text);
}

/// Feeds one chunk into one step; next(chunk, begins_token) takes what comes out.
struct Feed {
  Decoder::StepState& state;
  std::string_view chunk;
  bool begins_token;

  template <typename Next>
  void run(const Decoder::ByteLevel&, Next&& next) {
    if (const auto bytes = bytes_of_characters(chunk)) {
      state.held += *bytes;
    } else {
      state.held += chunk;
    }
    std::string text;
    release_characters(state.held, /*one_per_byte=*/false, text);
    next(text, state.tokens++ == 0);
  }

  template <typename Next>
  void run(const Decoder::ByteFallback&, Next&& next) {
    std::string text;
    if (const auto byte = byte_of(chunk)) {
      state.held += *byte;
      release_characters(state.held, /*one_per_byte=*/true, text);
      next(text, state.tokens++ == 0);  // tokens: bytes in this run so far
      return;
    }
    if (state.tokens > 0) finish_bytes(next);
    state.tokens = 0;
    next(chunk, true);
  }

  template <typename Next>
  void finish_bytes(Next&& next) {
    std::string text;
    for (size_t i = 0; i < state.held.size(); ++i) text.append(kReplacementCharacter);
    state.held.clear();
    if (!text.empty()) next(text, false);
  }

  template <typename Next>
  void run(const Decoder::Fuse&, Next&& next) {
    next(chunk, state.tokens++ == 0);
  }

  template <typename Next>
  void run(const Decoder::Strip& step, Next&& next) {
    if (begins_token) {
      state.held.clear();  // the end of the last token: cut off
      state.stripped = 0;
      state.front = true;
    }
    while (state.front && state.stripped < step.left && chunk.starts_with(step.character)) {
      chunk.remove_prefix(step.character.size());
      ++state.stripped;
    }
    if (!chunk.empty()) state.front = false;
    std::string text = std::move(state.held);
    text.append(chunk);
    size_t keep = text.size();
    for (size_t i = 0; i < step.right && std::string_view(text).substr(0, keep).ends_with(step.character); ++i) {
      keep -= step.character.size();
    }
    state.held = text.substr(keep);
    next(std::string_view(text).substr(0, keep), begins_token);
  }

  template <typename Next>
  void run(const Decoder::Metaspace& step, Next&& next) {
    if (begins_token) ++state.tokens;
    next(replace_mark(chunk, step.mark, step.drop_first && state.tokens == 1 ? "" : " "), begins_token);
  }

  template <typename Next>
  void run(const Decoder::Join&, Next&& next) {
    const bool first = begins_token && state.tokens++ == 0;
    next(begins_token && !first ? " " + std::string(chunk) : std::string(chunk), begins_token);
  }

  template <typename Next>
  void run(const Replacement& step, Next&& next) {
    next(step.apply(chunk), begins_token);
  }
};

}  // namespace

void Decoder::add(Step step, std::string_view where) {
  const auto refuse = [&](const char* what) {
    throw Error(ErrorKind::kInput,
                "{}: decoder {} stands behind ByteLevel, ByteFallback or Fuse, where tokenmill cannot run it "
                "token by token; it must come before them",
                where, what);
  };
  if (chunked_ && std::holds_alternative<ByteLevel>(step)) refuse("ByteLevel");
  if (chunked_ && std::holds_alternative<ByteFallback>(step)) refuse("ByteFallback");
  if (const auto* replacement = std::get_if<Replacement>(&step); chunked_ && replacement != nullptr) {
    const std::string* from = replacement->plain_text();
    if (from == nullptr || from->empty() || first_character(*from).bytes != from->size()) {
      refuse("Replace of more than one character");
    }
  }
  chunked_ = chunked_ || std::holds_alternative<ByteLevel>(step) || std::holds_alternative<ByteFallback>(step) ||
             std::holds_alternative<Fuse>(step);
  steps_.push_back(std::move(step));
}

void Decoder::feed(State& state, size_t step, std::string_view chunk, bool begins_token, std::string& out) const {
  if (step == steps_.size()) {
    out.append(chunk);
    return;
  }
  std::visit(
      [&](const auto& s) {
        Feed{state[step], chunk, begins_token}.run(
            s, [&](std::string_view text, bool begins) { feed(state, step + 1, text, begins, out); });
      },
      steps_[step]);
}

void Decoder::push(State& state, std::string_view token, std::string& out) const { feed(state, 0, token, true, out); }

void Decoder::finish(State& state, std::string& out) const {
  for (size_t i = 0; i < steps_.size(); ++i) {
    const auto next = [&](std::string_view text, bool begins) { feed(state, i + 1, text, begins, out); };
    if (std::holds_alternative<ByteLevel>(steps_[i]) && !state[i].held.empty()) {
      next(kReplacementCharacter, false);  // what is held is one part that could have begun a character
    } else if (std::holds_alternative<ByteFallback>(steps_[i])) {
      Feed{state[i], {}, false}.finish_bytes(next);
    }
    state[i] = StepState{};  // Strip: what is held is the end of the last token, cut off
  }
}

bool Decoder::byte_level() const {
  for (const Step& step : steps_) {
    if (std::holds_alternative<ByteLevel>(step)) return true;
  }
  return false;
}

std::string Decoder::token_bytes(std::string_view token) const {
  std::string bytes(token);
  for (const Step& step : steps_) {
    if (std::holds_alternative<ByteLevel>(step)) {
      if (auto raw = bytes_of_characters(bytes)) bytes = std::move(*raw);
      break;
    }
    if (std::holds_alternative<ByteFallback>(step)) {
      if (const auto byte = byte_of(bytes)) return std::string(1, *byte);
    } else if (const auto* replacement = std::get_if<Replacement>(&step)) {
      bytes = replacement->apply(bytes);
    } else if (const auto* metaspace = std::get_if<Metaspace>(&step)) {
      bytes = replace_mark(bytes, metaspace->mark, " ");
    }
  }
  return bytes;
}

}  // namespace tokenmill::text
