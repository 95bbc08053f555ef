#include "app/rows/words.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <utility>

#include "app/rows/values.h"
#include "engine/thinking_limiter.h"
#include "kernels/core/error.h"

namespace tokenmill::rows {
namespace {

constexpr std::pair<const char*, const char*> kKnownMarkers[] = {
    {"<think>", "</think>"},                     // Qwen3, DeepSeek-R1 and most others
    {"[THINK]", "[/THINK]"},                     // Magistral
    {"<|START_THINKING|>", "<|END_THINKING|>"},  // Command A
    {"<seed:think>", "</seed:think>"},           // Seed-OSS
};

std::vector<int32_t> encode(const text::Tokenizer& tokenizer, const std::string& text) {
  return tokenizer.encode(text, {.add_special_tokens = false});
}

}  // namespace

std::string beyond_vocabulary(const text::Tokenizer& tokenizer, const std::vector<int32_t>& ids, int64_t vocab_size) {
  if (tokenizer.vocab_size() <= vocab_size) return "";
  const auto found = std::find_if(ids.begin(), ids.end(), [&](int32_t id) { return id >= vocab_size; });
  if (found == ids.end()) return "";
  return fmt::format(
      "{} is token {} of the tokenizer, and the model's vocabulary is smaller, it ends at {}: the tokenizer belongs to "
      "another model",
      shown(io::JsonValue::string(tokenizer.decode(std::span(&*found, 1), {.skip_special_tokens = false}))), *found, vocab_size - 1);
}

std::vector<std::vector<int32_t>> tokenize_bad_words(const text::Tokenizer& tokenizer,
                                                     const std::vector<std::string>& words, int64_t vocab_size) {
  std::vector<std::vector<int32_t>> sequences;
  for (size_t i = 0; i < words.size(); ++i) {
    const std::string word = words[i].substr(std::min(words[i].find_first_not_of(" \t\r\n\v\f"), words[i].size()));
    const std::vector<int32_t> bare = encode(tokenizer, word);
    if (bare.empty())
      throw BadRow{"invalid_request", "bad_words",
                   fmt::format("bad_words[{}] is {}, which has no token in this vocabulary", i,
                               shown(io::JsonValue::string(words[i])))};
    sequences.push_back(bare);
    const std::vector<int32_t> spaced = encode(tokenizer, " " + word);
    const bool ends_in_bare = spaced.size() >= bare.size() && std::equal(bare.rbegin(), bare.rend(), spaced.rbegin());
    if (!ends_in_bare) sequences.push_back(spaced);
    for (const std::vector<int32_t>& ids : {bare, ends_in_bare ? bare : spaced})
      if (const std::string beyond = beyond_vocabulary(tokenizer, ids, vocab_size); !beyond.empty())
        throw BadRow{"invalid_request", "bad_words",
                     fmt::format("bad_words[{}] is {}: {}", i, shown(io::JsonValue::string(words[i])), beyond)};
  }
  return sequences;
}

ThinkingMarkers find_thinking_markers(const text::Tokenizer& tokenizer, const std::string& start,
                                      const std::string& end) {
  if (start.empty() != end.empty())
    throw Error(ErrorKind::kConfig, "--think-{} is given without --think-{}; give both",
                start.empty() ? "end" : "start", start.empty() ? "start" : "end");
  if (!start.empty()) {
    const ThinkingMarkers markers{encode(tokenizer, start), encode(tokenizer, end)};
    for (const auto& [ids, name] :
         {std::pair(&markers.start_token_ids, "start"), std::pair(&markers.end_token_ids, "end")})
      if (ids->empty())
        throw Error(ErrorKind::kConfig, "--think-{} has no token in the model's vocabulary; give another text", name);
    return markers;
  }
  for (const auto& [known_start, known_end] : kKnownMarkers) {
    const std::optional<int32_t> first = tokenizer.token_to_id(known_start), last = tokenizer.token_to_id(known_end);
    if (first && last) return {{*first}, {*last}};
  }
  return {};
}

ThinkingBudget thinking_budget(int64_t max_tokens, const ThinkingMarkers& markers,
                               const std::vector<int32_t>& prompt_token_ids) {
  if (markers.start_token_ids.empty())
    throw BadRow{"invalid_request", "thinking_token_budget",
                 fmt::format("thinking_token_budget is {}; the model's vocabulary has no thinking markers such as "
                             "<think> and </think>: leave it out, or name them with --think-start and --think-end",
                             max_tokens)};
  return {
      .max_tokens = max_tokens,
      .start_token_ids = markers.start_token_ids,
      .end_token_ids = markers.end_token_ids,
      .num_prompt_tokens = num_open_thinking_tokens(prompt_token_ids, markers.start_token_ids, markers.end_token_ids)};
}

}  // namespace tokenmill::rows
