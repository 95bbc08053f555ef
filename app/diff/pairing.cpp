#include "app/diff/pairing.h"

namespace tokenmill::diff {
namespace {

enum class Turn { kPair, kOnlyA, kOnlyB };

Turn next_turn(RowStream& a, RowStream& b) {
  if (b.head() == nullptr) return Turn::kOnlyA;
  if (a.head() == nullptr) return Turn::kOnlyB;
  if (a.head()->bytes == b.head()->bytes) return Turn::kPair;
  const RowKey key_a = a.head_key(), key_b = b.head_key();
  if (key_a.id_json == key_b.id_json) return Turn::kPair;
  const std::optional<int64_t> to_b = a.distance_to(key_b.id_json);
  const std::optional<int64_t> to_a = b.distance_to(key_a.id_json);
  if (to_b && (!to_a || *to_b <= *to_a)) return Turn::kOnlyA;
  if (to_a) return Turn::kOnlyB;
  if (!key_a.row || !key_b.row || *key_a.row == *key_b.row) return Turn::kPair;
  return *key_a.row < *key_b.row ? Turn::kOnlyA : Turn::kOnlyB;
}

}  // namespace

void visit_pairs(RowStream& a, RowStream& b, const PairVisitor& visit) {
  while (a.head() != nullptr || b.head() != nullptr) {
    const Turn turn = next_turn(a, b);
    visit(turn == Turn::kOnlyB ? nullptr : a.head(), turn == Turn::kOnlyA ? nullptr : b.head());
    if (turn != Turn::kOnlyB) a.pop();
    if (turn != Turn::kOnlyA) b.pop();
  }
}

}  // namespace tokenmill::diff
