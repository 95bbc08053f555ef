#include "engine/text/bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include "engine/text/byte_level.h"
#include "engine/text/unicode.h"
#include "kernels/core/error.h"

namespace tokenmill::text {
namespace {

constexpr std::string_view kMark = "\xE2\x96\x81";  // U+2581, SentencePiece's space
constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();
constexpr size_t kShortWord = 64;  // symbols; up to here a scan per merge beats a heap

uint64_t pair_key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

uint64_t mix(uint64_t key) {
  key *= 0x9E3779B97F4A7C15u;
  return key ^ key >> 32;
}

}  // namespace

BpeModel::BpeModel(Vocabulary vocabulary, const std::vector<Merge>& merges, const BpeOptions& options)
    : vocabulary_(std::move(vocabulary)), options_(options) {
  merges_.resize(std::bit_ceil(merges.size() * 2 + 2));
  merge_mask_ = merges_.size() - 1;
  for (const Merge& merge : merges) insert_merge(merge);

  for (int byte = 0; byte < 256; ++byte) {
    const auto i = static_cast<size_t>(byte);
    byte_ids_[i] =
        vocabulary_.find(options_.byte_level ? byte_characters()[i] : fmt::format("<0x{:02X}>", byte)).value_or(-1);
  }
  if (options_.byte_level && options_.ignore_merges) {
    std::vector<int32_t> ids;
    for (int32_t id = 0; id < vocabulary_.size(); ++id) {
      if (!vocabulary_.contains(id)) continue;
      if (auto bytes = bytes_of_characters(vocabulary_.token(id))) {
        piece_bytes_.push_back(std::move(*bytes));
        ids.push_back(id);
      }
    }
    pieces_.reserve(ids.size());
    for (size_t i = 0; i < ids.size(); ++i) pieces_.try_emplace(piece_bytes_[i], ids[i]);
  }
  cut_before_mark_ =
      !options_.byte_level && vocabulary_.find(kMark).has_value() &&
      std::none_of(merges.begin(), merges.end(), [&](const Merge& m) {
        return vocabulary_.token(m.right).starts_with(kMark) && !vocabulary_.token(m.left).ends_with(kMark);
      });
}

void BpeModel::insert_merge(const Merge& merge) {
  const uint64_t key = pair_key(merge.left, merge.right);
  size_t at = mix(key) & merge_mask_;
  while (merges_[at].pair != ~uint64_t{0} && merges_[at].pair != key) at = (at + 1) & merge_mask_;
  merges_[at] = {key, merge.rank, merge.result};
}

const BpeModel::MergeSlot* BpeModel::find_merge(int32_t left, int32_t right) const {
  const uint64_t key = pair_key(left, right);
  for (size_t at = mix(key) & merge_mask_;; at = (at + 1) & merge_mask_) {
    const MergeSlot& slot = merges_[at];
    if (slot.pair == key) return &slot;
    if (slot.pair == ~uint64_t{0}) return nullptr;
  }
}

void BpeModel::encode(std::string_view piece, BpeWorkspace& workspace, std::vector<int32_t>& out) const {
  if (options_.ignore_merges) {
    if (options_.byte_level) {
      if (const auto it = pieces_.find(piece); it != pieces_.end()) return out.push_back(it->second);
    } else if (const auto id = vocabulary_.find(piece)) {
      return out.push_back(*id);
    }
  }
  if (!cut_before_mark_) return encode_word(piece, workspace, out);
  // No merge reaches across "x U+2581", so the parts give the same ids as the whole, and words repeat: the cache works.
  size_t begin = 0;
  for (size_t at = piece.find(kMark); at != std::string_view::npos; at = piece.find(kMark, at + kMark.size())) {
    if (at == begin || piece.substr(begin, at - begin).ends_with(kMark)) continue;
    encode_word(piece.substr(begin, at - begin), workspace, out);
    begin = at;
  }
  encode_word(piece.substr(begin), workspace, out);
}

void BpeModel::encode_word(std::string_view word, BpeWorkspace& workspace, std::vector<int32_t>& out) const {
  const bool cacheable = word.size() <= WordCache::kMaxWordBytes;
  const uint64_t hash = cacheable ? WordCache::hash(word) : 0;
  if (cacheable) {
    if (const auto known = workspace.cache.find(word, hash); known.data() != nullptr) {
      out.insert(out.end(), known.begin(), known.end());
      return;
    }
  }
  workspace.ids.clear();
  start_symbols(word, workspace.ids);
  if (workspace.ids.size() <= kShortWord) {
    merge_short(workspace);
  } else {
    merge_long(workspace);
  }
  if (cacheable) workspace.cache.insert(word, hash, workspace.ids);
  out.insert(out.end(), workspace.ids.begin(), workspace.ids.end());
}

void BpeModel::start_symbols(std::string_view word, std::vector<int32_t>& ids) const {
  Unknown unknown;
  if (options_.byte_level) {
    for (const char c : word) {
      const auto byte = static_cast<unsigned char>(c);
      if (byte_ids_[byte] >= 0 && !unknown.pending) {
        ids.push_back(byte_ids_[byte]);
      } else {
        add_character(byte_characters()[byte], unknown, ids);
      }
    }
  } else {
    while (!word.empty()) {
      const size_t bytes = first_character(word).bytes;
      add_character(word.substr(0, bytes), unknown, ids);
      word.remove_prefix(bytes);
    }
  }
  if (unknown.pending) ids.push_back(*options_.unk_id);
}

// As the tokenizers package does it, its order included: an unknown token waits for a following unknown character to
// fuse with, and byte tokens do not flush it.
void BpeModel::add_character(std::string_view character, Unknown& unknown, std::vector<int32_t>& ids) const {
  if (const auto id = vocabulary_.find(character)) {
    if (unknown.pending) ids.push_back(*options_.unk_id);
    unknown.pending = false;
    ids.push_back(*id);
    return;
  }
  if (options_.byte_fallback && !options_.byte_level) {
    const auto id_of = [&](char c) { return byte_ids_[static_cast<unsigned char>(c)]; };
    if (std::all_of(character.begin(), character.end(), [&](char c) { return id_of(c) >= 0; })) {
      for (const char c : character) ids.push_back(id_of(c));
      return;
    }
  }
  if (!options_.unk_id) return;
  if (unknown.pending && !options_.fuse_unk) ids.push_back(*options_.unk_id);
  unknown.pending = true;
}

void BpeModel::merge_short(BpeWorkspace& w) const {
  size_t n = w.ids.size();
  w.ranks.resize(n + 1);
  w.results.resize(n + 1);
  const auto look_up = [&](size_t i) {  // the pair (i, i + 1)
    const MergeSlot* slot = i + 1 < n ? find_merge(w.ids[i], w.ids[i + 1]) : nullptr;
    w.ranks[i] = slot ? slot->rank : kNoRank;
    w.results[i] = slot ? slot->result : 0;
  };
  for (size_t i = 0; i < n; ++i) look_up(i);
  while (n > 1) {
    const auto best = static_cast<size_t>(
        std::min_element(w.ranks.begin(), w.ranks.begin() + static_cast<ptrdiff_t>(n)) - w.ranks.begin());
    if (w.ranks[best] == kNoRank) break;
    w.ids[best] = w.results[best];
    --n;
    const size_t moved = n - best - 1;
    const auto close_gap = [&](auto* values) {
      std::memmove(values + best + 1, values + best + 2, moved * sizeof(*values));
    };
    close_gap(w.ids.data());
    close_gap(w.ranks.data());
    close_gap(w.results.data());
    look_up(best);
    if (best > 0) look_up(best - 1);
  }
  w.ids.resize(n);
}

void BpeModel::merge_long(BpeWorkspace& w) const {
  const auto n = static_cast<int32_t>(w.ids.size());
  w.symbols.resize(w.ids.size());
  w.heap.clear();
  const auto later = [](const BpeWorkspace::Candidate& a, const BpeWorkspace::Candidate& b) {
    return a.rank != b.rank ? a.rank > b.rank : a.position > b.position;
  };
  const auto symbol = [&](int32_t i) -> BpeWorkspace::Symbol& { return w.symbols[static_cast<size_t>(i)]; };
  for (int32_t i = 0; i < n; ++i) {
    symbol(i) = {w.ids[static_cast<size_t>(i)], i - 1, i + 1 < n ? i + 1 : -1};
    if (i == 0) continue;
    if (const MergeSlot* m = find_merge(symbol(i - 1).id, symbol(i).id)) w.heap.push_back({m->rank, i - 1, m->result});
  }
  std::make_heap(w.heap.begin(), w.heap.end(), later);
  const auto push = [&](int32_t left) {
    if (const MergeSlot* m = find_merge(symbol(left).id, symbol(symbol(left).next).id)) {
      w.heap.push_back({m->rank, left, m->result});
      std::push_heap(w.heap.begin(), w.heap.end(), later);
    }
  };
  while (!w.heap.empty()) {
    std::pop_heap(w.heap.begin(), w.heap.end(), later);
    const BpeWorkspace::Candidate top = w.heap.back();
    w.heap.pop_back();
    BpeWorkspace::Symbol& left = symbol(top.position);
    if (left.id < 0 || left.next < 0) continue;
    BpeWorkspace::Symbol& right = symbol(left.next);
    const MergeSlot* now = find_merge(left.id, right.id);
    if (now == nullptr || now->result != top.result) continue;  // the pair changed since this candidate was found
    left.id = top.result;
    left.next = right.next;
    right.id = -1;
    if (left.next >= 0) symbol(left.next).previous = top.position;
    if (left.previous >= 0) push(left.previous);
    if (left.next >= 0) push(top.position);
  }
  w.ids.clear();
  for (int32_t i = 0; i >= 0 && n > 0; i = symbol(i).next) w.ids.push_back(symbol(i).id);
}

}  // namespace tokenmill::text
