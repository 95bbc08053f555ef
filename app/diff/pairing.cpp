#include "app/diff/pairing.h"

#include <algorithm>
#include <map>
#include <unordered_set>
#include <utility>

namespace tokenmill::diff {
namespace {

enum class Turn { kPair, kOnlyA, kOnlyB, kOtherIds };

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
  if (!key_a.row || !key_b.row || *key_a.row == *key_b.row) return Turn::kOtherIds;
  return *key_a.row < *key_b.row ? Turn::kOnlyA : Turn::kOnlyB;
}

class Pairing {
 public:
  Pairing(RowStream& a, RowStream& b, const PairVisitor& visit, int64_t max_waiting_bytes)
      : sides_{Side{a}, Side{b}}, visit_(visit), max_waiting_bytes_(max_waiting_bytes) {}

  PairingNotes run() {
    RowStream &a = sides_[0].stream, &b = sides_[1].stream;
    while (a.head() != nullptr || b.head() != nullptr) {
      if (take_waiting(0) || take_waiting(1)) continue;
      const Turn turn = next_turn(a, b);
      if (turn == Turn::kPair) {
        visit_(a.head(), b.head());
        a.pop();
        b.pop();
        continue;
      }
      if (turn != Turn::kOnlyB) park(0);
      if (turn != Turn::kOnlyA) park(1);
      if (turn == Turn::kOtherIds) {
        sides_[0].waiting.rbegin()->second.opposite = sides_[1].waiting.rbegin()->first;
        sides_[1].waiting.rbegin()->second.opposite = sides_[0].waiting.rbegin()->first;
      }
      for (const int side : {0, 1}) {
        while (sides_[side].num_bytes > max_waiting_bytes_) give_up(side);
      }
    }
    // In the order in which they were met.
    while (!sides_[0].waiting.empty() || !sides_[1].waiting.empty()) {
      const bool first_is_b =
          sides_[0].waiting.empty() ||
          (!sides_[1].waiting.empty() && sides_[1].waiting.begin()->first < sides_[0].waiting.begin()->first);
      give_up(first_is_b ? 1 : 0);
    }
    return notes_;
  }

 private:
  // A line that has gone on alone and may still find its pair.
  struct Waiting {
    ResultLine line;
    std::string id_json;
    int64_t opposite = -1;  // the other side's line that it is compared with if neither finds a pair
  };
  struct Side {
    RowStream& stream;
    std::map<int64_t, Waiting> waiting = {};                   // by the order in which they were met
    std::unordered_multimap<std::string, int64_t> by_id = {};  // into waiting
    int64_t num_bytes = 0;
    std::unordered_set<size_t> alone = {};  // hashes of ids that found no pair
  };
  static constexpr size_t kMaxAlone = size_t{1} << 20;

  void visit(int side, const ResultLine* mine, const ResultLine* other) {
    side == 0 ? visit_(mine, other) : visit_(other, mine);
  }

  /// Pairs the head of a side with a line of the other side that waits for it.
  bool take_waiting(int side) {
    Side &mine = sides_[side], &other = sides_[1 - side];
    if (other.waiting.empty() || mine.stream.head() == nullptr) return false;
    const auto [begin, end] = other.by_id.equal_range(mine.stream.head_key().id_json);
    if (begin == end) return false;
    const int64_t first =
        std::min_element(begin, end, [](const auto& x, const auto& y) { return x.second < y.second; })->second;
    const Waiting partner = remove(1 - side, first);
    ++notes_.num_moved;
    visit(side, mine.stream.head(), &partner.line);
    mine.stream.pop();
    return true;
  }

  void park(int side) {
    Side& mine = sides_[side];
    Waiting waiting{*mine.stream.head(), mine.stream.head_key().id_json};
    mine.num_bytes += static_cast<int64_t>(waiting.line.bytes.size());
    mine.by_id.emplace(waiting.id_json, num_met_);
    mine.waiting.emplace(num_met_++, std::move(waiting));
    mine.stream.pop();
  }

  Waiting remove(int side, int64_t number) {
    Side& mine = sides_[side];
    const auto at = mine.waiting.find(number);
    Waiting waiting = std::move(at->second);
    mine.waiting.erase(at);
    const auto [begin, end] = mine.by_id.equal_range(waiting.id_json);
    mine.by_id.erase(std::find_if(begin, end, [&](const auto& entry) { return entry.second == number; }));
    mine.num_bytes -= static_cast<int64_t>(waiting.line.bytes.size());
    return waiting;
  }

  /// The side's line that has waited longest has no pair.
  void give_up(int side) {
    const Waiting waiting = remove(side, sides_[side].waiting.begin()->first);
    note_alone(side, waiting.id_json);
    if (!sides_[1 - side].waiting.contains(waiting.opposite)) return visit(side, &waiting.line, nullptr);
    const Waiting opposite = remove(1 - side, waiting.opposite);
    note_alone(1 - side, opposite.id_json);
    visit(side, &waiting.line, &opposite.line);
  }

  void note_alone(int side, const std::string& id_json) {
    const size_t hash = std::hash<std::string>()(id_json);
    if (sides_[1 - side].alone.contains(hash)) ++notes_.num_separated;
    if (sides_[side].alone.size() < kMaxAlone) sides_[side].alone.insert(hash);
  }

  Side sides_[2];
  const PairVisitor& visit_;
  int64_t max_waiting_bytes_;  // per side
  PairingNotes notes_;
  int64_t num_met_ = 0;
};

}  // namespace

PairingNotes visit_pairs(RowStream& a, RowStream& b, const PairVisitor& visit, int64_t max_waiting_bytes) {
  return Pairing(a, b, visit, max_waiting_bytes).run();
}

}  // namespace tokenmill::diff
