#include "engine/text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <array>

#include "kernels/core/error.h"

namespace tokenmill::text {
namespace {

std::string pcre2_message(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

/// What one thread needs to run any pattern: room for one match, and a stack of its own for the compiled code.
class MatchWorkspace {
 public:
  static MatchWorkspace& of_this_thread() {
    thread_local MatchWorkspace workspace;
    return workspace;
  }
  pcre2_match_data* data() { return data_.get(); }
  pcre2_match_context* context() { return context_.get(); }

 private:
  MatchWorkspace() {
    if (!data_ || !context_ || !stack_) throw Error(ErrorKind::kInternal, "PCRE2: out of memory");
    pcre2_jit_stack_assign(context_.get(), nullptr, stack_.get());
  }
  static constexpr size_t kStackBytes = 32 << 10;
  static constexpr size_t kMaxStackBytes = 8 << 20;
  std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)> data_{pcre2_match_data_create(1, nullptr),
                                                                            &pcre2_match_data_free};
  std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)> context_{
      pcre2_match_context_create(nullptr), &pcre2_match_context_free};
  std::unique_ptr<pcre2_jit_stack, decltype(&pcre2_jit_stack_free)> stack_{
      pcre2_jit_stack_create(kStackBytes, kMaxStackBytes, nullptr), &pcre2_jit_stack_free};
};

}  // namespace

struct Regex::Code {
  pcre2_code* code = nullptr;
  bool jit = false;
  Code() = default;
  Code(const Code&) = delete;
  Code& operator=(const Code&) = delete;
  ~Code() { pcre2_code_free(code); }
};

Regex::Regex(std::string_view pattern, std::string_view where) : pattern_(pattern) {
  const std::string translated = translate_to_pcre2(pattern, where);
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), &pcre2_compile_context_free);
  if (!context) throw Error(ErrorKind::kInternal, "PCRE2: out of memory");
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  code->code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error, &offset, context.get());
  if (code->code == nullptr) {
    throw Error(ErrorKind::kInput, "{}: PCRE2 cannot compile the pattern \"{}\" (as \"{}\"): {} at byte {}", where,
                pattern, translated, pcre2_message(error), offset);
  }
  code->jit = pcre2_jit_compile(code->code, PCRE2_JIT_COMPLETE) == 0;
  code_ = std::move(code);
}

std::optional<Span> Regex::find(std::string_view text, size_t from) const {
  MatchWorkspace& workspace = MatchWorkspace::of_this_thread();
  const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data() != nullptr ? text.data() : "");
  const auto match = code_->jit ? &pcre2_jit_match : &pcre2_match;
  const int result =
      match(code_->code, subject, text.size(), from, PCRE2_NO_UTF_CHECK, workspace.data(), workspace.context());
  if (result == PCRE2_ERROR_NOMATCH) return std::nullopt;
  if (result < 0) {
    throw Error(ErrorKind::kInput, "the tokenizer's pattern \"{}\" fails on a text of {} bytes at byte {}: {}",
                pattern_, text.size(), from, pcre2_message(result));
  }
  const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(workspace.data());
  // \K is refused, so a match cannot end before it begins; without progress the caller would loop.
  return Span{ends[0], ends[1]};
}

}  // namespace tokenmill::text
