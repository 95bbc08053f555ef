#include "engine/text/tokenizer.h"

#include <algorithm>
#include <atomic>
#include <unordered_map>

#include "engine/text/tokenizer_parts.h"
#include "engine/text/unicode.h"
#include "io/utf8.h"

namespace tokenmill::text {
namespace {

/// Memory of one thread, reused from call to call; its word cache belongs to the tokenizer that used it last.
struct Workspace {
  uint64_t owner = 0;
  BpeWorkspace bpe;
  std::string text;
  std::vector<Span> pieces;
};

Workspace& workspace_for(uint64_t tokenizer) {
  thread_local Workspace workspace;
  if (workspace.owner != tokenizer) {
    workspace.bpe.cache.clear();
    workspace.owner = tokenizer;
  }
  return workspace;
}

uint64_t next_identity() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

struct Tokenizer::Impl {
  explicit Impl(TokenizerParts from);

  void encode_section(std::string_view text, bool at_start, const EncodeOptions& options, Workspace& workspace,
                      std::vector<int32_t>& out) const;
  void encode_plain(std::string_view text, bool at_start, Workspace& workspace, std::vector<int32_t>& out) const;
  /// nullptr for ids without a token.
  const std::string* token(int32_t id) const;

  uint64_t identity = next_identity();
  TokenizerParts parts;
  std::unordered_map<int32_t, AddedToken> added_by_id;
  std::unordered_map<std::string, int32_t> added_ids;
  AddedTokenMatcher raw_matcher;         // looks into the text as given
  AddedTokenMatcher normalized_matcher;  // looks into the normalized text
  int32_t vocab_size = 0;
};

Tokenizer::Impl::Impl(TokenizerParts from) : parts(std::move(from)) {
  vocab_size = parts.model.vocabulary().size();
  std::vector<AddedToken> raw;
  std::vector<AddedToken> normalized;
  for (const AddedToken& token : parts.added_tokens) {
    added_by_id.try_emplace(token.id, token);
    added_ids.try_emplace(token.content, token.id);
    vocab_size = std::max(vocab_size, token.id + 1);
    if (token.normalized) {
      normalized.push_back(token);
      normalized.back().content = parts.normalizer.apply(token.content);
    } else {
      raw.push_back(token);
    }
  }
  raw_matcher = AddedTokenMatcher(std::move(raw));
  normalized_matcher = AddedTokenMatcher(std::move(normalized));
}

const std::string* Tokenizer::Impl::token(int32_t id) const {
  if (const auto it = added_by_id.find(id); it != added_by_id.end()) return &it->second.content;
  const Vocabulary& vocabulary = parts.model.vocabulary();
  return vocabulary.contains(id) ? &vocabulary.token(id) : nullptr;
}

void Tokenizer::Impl::encode_plain(std::string_view text, bool at_start, Workspace& workspace,
                                   std::vector<int32_t>& out) const {
  workspace.text.assign(text);
  parts.pre_tokenizer.apply(workspace.text, workspace.pieces, at_start);
  const std::string_view view = workspace.text;
  for (const Span& piece : workspace.pieces) {
    parts.model.encode(view.substr(piece.begin, piece.end - piece.begin), workspace.bpe, out);
  }
}

void Tokenizer::Impl::encode_section(std::string_view text, bool at_start, const EncodeOptions& options,
                                     Workspace& workspace, std::vector<int32_t>& out) const {
  if (parts.normalizer.empty() && normalized_matcher.empty()) return encode_plain(text, at_start, workspace, out);
  const std::string normalized = parts.normalizer.apply(text);
  std::vector<AddedTokenMatcher::Section> sections;
  normalized_matcher.cut(normalized, options.parse_special, sections);
  for (const auto& [span, id] : sections) {
    if (id >= 0) {
      out.push_back(id);
    } else {
      encode_plain(std::string_view(normalized).substr(span.begin, span.end - span.begin), at_start && span.begin == 0,
                   workspace, out);
    }
  }
}

Tokenizer::Tokenizer(TokenizerParts parts) : impl_(std::make_shared<const Impl>(std::move(parts))) {}

std::vector<int32_t> Tokenizer::encode(std::string_view text, const EncodeOptions& options) const {
  std::string mended;
  if (io::find_invalid_utf8(text) != std::string_view::npos) text = mended = replace_invalid_utf8(text);
  Workspace& workspace = workspace_for(impl_->identity);
  std::vector<int32_t> out;
  out.reserve(text.size() / 3 + 8);
  if (options.add_special_tokens) out = impl_->parts.before;
  std::vector<AddedTokenMatcher::Section> sections;
  impl_->raw_matcher.cut(text, options.parse_special, sections);
  for (const auto& [span, id] : sections) {
    if (id >= 0) {
      out.push_back(id);
    } else {
      impl_->encode_section(text.substr(span.begin, span.end - span.begin), span.begin == 0, options, workspace, out);
    }
  }
  if (options.add_special_tokens) out.insert(out.end(), impl_->parts.after.begin(), impl_->parts.after.end());
  return out;
}

std::string Tokenizer::decode(std::span<const int32_t> ids, const DecodeOptions& options) const {
  std::string out;
  Detokenizer detokenizer(*this, options);
  for (const int32_t id : ids) detokenizer.push(id, out);
  detokenizer.finish(out);
  return out;
}

int32_t Tokenizer::vocab_size() const { return impl_->vocab_size; }

std::optional<int32_t> Tokenizer::token_to_id(std::string_view token) const {
  if (const auto it = impl_->added_ids.find(std::string(token)); it != impl_->added_ids.end()) return it->second;
  return impl_->parts.model.vocabulary().find(token);
}

std::optional<std::string_view> Tokenizer::id_to_token(int32_t id) const {
  const std::string* token = impl_->token(id);
  return token == nullptr ? std::nullopt : std::optional<std::string_view>(*token);
}

std::string Tokenizer::token_bytes(int32_t id) const {
  const std::string* token = impl_->token(id);
  return token == nullptr ? std::string() : impl_->parts.decoder.token_bytes(*token);
}

bool Tokenizer::is_special(int32_t id) const {
  const auto it = impl_->added_by_id.find(id);
  return it != impl_->added_by_id.end() && it->second.special;
}

std::optional<int32_t> Tokenizer::bos_id() const { return impl_->parts.bos_id; }
std::optional<int32_t> Tokenizer::eos_id() const { return impl_->parts.eos_id; }
std::optional<int32_t> Tokenizer::pad_id() const { return impl_->parts.pad_id; }
std::optional<int32_t> Tokenizer::unk_id() const { return impl_->parts.unk_id; }

struct Detokenizer::State {
  Tokenizer tokenizer;
  DecodeOptions options;
  Decoder::State decoder;
  bool behind_added = false;  // the last token is an added one
};

Detokenizer::Detokenizer(const Tokenizer& tokenizer, const DecodeOptions& options)
    : state_(new State{tokenizer, options, tokenizer.impl_->parts.decoder.start()}) {}
Detokenizer::~Detokenizer() = default;
Detokenizer::Detokenizer(Detokenizer&&) noexcept = default;
Detokenizer& Detokenizer::operator=(Detokenizer&&) noexcept = default;

void Detokenizer::push(int32_t id, std::string& out) {
  const Tokenizer::Impl& impl = *state_->tokenizer.impl_;
  const std::string* token = impl.token(id);
  const auto& [skip_special_tokens, spaces_between_special_tokens] = state_->options;
  if (token == nullptr || (skip_special_tokens && state_->tokenizer.is_special(id))) return;
  const bool added = impl.added_by_id.contains(id);
  const bool as_spelled = added && state_->behind_added && !skip_special_tokens && !spaces_between_special_tokens;
  state_->behind_added = added;
  if (!as_spelled) return impl.parts.decoder.push(state_->decoder, *token, out);
  std::string spaced;  // for the decoder's state only
  impl.parts.decoder.push(state_->decoder, *token, spaced);
  out.append(*token);
}

void Detokenizer::finish(std::string& out) {
  state_->tokenizer.impl_->parts.decoder.finish(state_->decoder, out);
  state_->behind_added = false;
}

}  // namespace tokenmill::text
