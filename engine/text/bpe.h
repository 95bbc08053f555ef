#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "engine/text/vocabulary.h"
#include "engine/text/word_cache.h"

namespace tokenmill::text {

/// One rule: `left` followed by `right` becomes `result`. The lowest rank goes first, the leftmost among equals.
struct Merge {
  int32_t left;
  int32_t right;
  uint32_t rank;
  int32_t result;
};

struct BpeOptions {
  bool byte_level = false;        ///< pieces are cut into bytes, spelled by byte_characters() in the vocabulary
  bool ignore_merges = false;     ///< a piece that is in the vocabulary is that token, whatever the merges say
  bool byte_fallback = false;     ///< a character outside the vocabulary becomes its bytes' tokens <0x00>..<0xFF>
  bool fuse_unk = false;          ///< neighbouring unknown characters are one unknown token
  std::optional<int32_t> unk_id;  ///< none: unknown characters vanish
};

/// Memory of one thread for encoding, reused from call to call.
struct BpeWorkspace {
  struct Symbol {
    int32_t id;  // -1: merged into its left neighbour
    int32_t previous;
    int32_t next;
  };
  struct Candidate {
    uint32_t rank;
    int32_t position;
    int32_t result;
  };
  WordCache cache;
  std::vector<int32_t> ids;
  std::vector<uint32_t> ranks;
  std::vector<int32_t> results;
  std::vector<Symbol> symbols;
  std::vector<Candidate> heap;
};

/// Byte-pair encoding of single pieces. Immutable, thread-safe.
class BpeModel {
 public:
  /// Of merges with the same pair the last one counts.
  BpeModel(Vocabulary vocabulary, const std::vector<Merge>& merges, const BpeOptions& options);

  /// Appends the ids of a piece (valid UTF-8 of any length, O(n log n)) to out.
  void encode(std::string_view piece, BpeWorkspace& workspace, std::vector<int32_t>& out) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  const BpeOptions& options() const { return options_; }

 private:
  struct MergeSlot {
    uint64_t pair = ~uint64_t{0};
    uint32_t rank = 0;
    int32_t result = 0;
  };
  struct Unknown {
    bool pending = false;
  };
  const MergeSlot* find_merge(int32_t left, int32_t right) const;
  void insert_merge(const Merge& merge);
  void encode_word(std::string_view word, BpeWorkspace& workspace, std::vector<int32_t>& out) const;
  void start_symbols(std::string_view word, std::vector<int32_t>& ids) const;
  void add_character(std::string_view character, Unknown& unknown, std::vector<int32_t>& ids) const;
  void merge_short(BpeWorkspace& workspace) const;
  void merge_long(BpeWorkspace& workspace) const;

  Vocabulary vocabulary_;
  BpeOptions options_;
  std::vector<MergeSlot> merges_;  // open addressing, a power of two
  size_t merge_mask_ = 0;
  std::array<int32_t, 256> byte_ids_{};   // id of the byte's character (byte_level) or of <0xNN>; -1 when absent
  std::vector<std::string> piece_bytes_;  // what the keys of pieces_ point into
  std::unordered_map<std::string_view, int32_t> pieces_;  // raw bytes -> id, for byte_level with ignore_merges
  bool cut_before_mark_ = false;  // no token has U+2581 behind another character: words can be cut there
};

}  // namespace tokenmill::text
