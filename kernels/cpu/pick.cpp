// pick, and its two halves shortlist and pick_listed; semantics in kernels/ops.h. A row is one thread's.
#include <bit>

#include "kernels/core/check.h"
#include "kernels/cpu/cpu_ops.h"
#include "kernels/cpu/pick_row.h"
#include "kernels/cpu/raw_softmax.h"
#include "kernels/random.h"

namespace tokenmill::cpu {
namespace {

PickRow make_row(Isa isa, const HeadTiles& tiles, int64_t r, int64_t vocab_size, const RowLogits& raw,
                 const StepTensors& step, const SamplingTables& tables) {
  const LogitsRows& rows = step.rows;
  const int64_t slot = rows.slots.as<int32_t>()[r], token = rows.tokens.as<int32_t>()[r];
  const auto key = static_cast<uint64_t>(tables.key.as<int64_t>()[slot]);
  return {sampling_kernels(isa),
          tiles,
          r,
          vocab_size,
          raw,
          row_adjustment(rows, r, tables),
          rows.forced_ids.as<int32_t>()[r],
          tables.temperature.as<float>()[slot],
          {tables.min_p.as<float>()[slot], tables.top_k.as<int32_t>()[slot], tables.top_p.as<float>()[slot]},
          uniform(key, step.positions.as<int64_t>()[token] + 1)};
}

struct Picked {
  int32_t id = 0;
  float logprob = 0;
  int32_t status = 0;
};

/// id(choice) and raw logit(id) of the row's choice.
template <typename Id, typename Logit>
Picked pick_row(const PickRow& row, Id&& id, Logit&& logit) {
  const RawSoftmax softmax(row.tiles, row.row);
  if (!softmax.finite) return {.id = 0, .logprob = 0, .status = 1};
  const Choice choice = make_choice(row);
  if (choice.kind == Choice::Kind::kNothing) return {.id = 0, .logprob = 0, .status = 2};
  const int64_t chosen = id(choice);
  return {.id = static_cast<int32_t>(chosen), .logprob = softmax.logprob(logit(chosen)), .status = 0};
}

void store(const Picked& picked, const PickResult& out, const PickRow& row, int64_t slot,
           const SamplingTables& tables) {
  out.token_ids.as<int32_t>()[row.row] = picked.id;
  out.logprobs.as<float>()[row.row] = picked.logprob;
  out.status.as<int32_t>()[row.row] = picked.status;
  tables.last_token.as<int32_t>()[slot] = picked.id;
  if (picked.status == 0 && row.adjustment.counts != nullptr) ++tables.counts.row<int32_t>(slot)[picked.id];
}

/// One row of a shortlist.
struct ListRow {
  int32_t* words;
  int64_t capacity;

  ListRow(const TensorView& list, int64_t r) : words(list.row<int32_t>(r)), capacity((list.cols() - 1) / 3) {}
  int64_t count() const { return words[0]; }
  int32_t* ids() const { return words + 1; }
  int32_t* logits() const { return words + 1 + capacity; }
  int32_t* scaled() const { return words + 1 + 2 * capacity; }
  static float value(int32_t bits) { return std::bit_cast<float>(bits); }
  void set_count(int64_t count) const { words[0] = static_cast<int32_t>(count); }
  void set(int64_t i, int32_t id, float logit, float scaled_logit) const {
    ids()[i] = id;
    logits()[i] = std::bit_cast<int32_t>(logit);
    scaled()[i] = std::bit_cast<int32_t>(scaled_logit);
  }
};

void list_row(const PickRow& row, int64_t first_tile, int64_t end_tile, const ListRow& list, Scratch& scratch) {
  list.set_count(0);
  if (!RawSoftmax(row.tiles, row.row).finite) return;
  const Choice choice = make_choice(row);
  if (choice.kind == Choice::Kind::kNothing) return;
  if (choice.kind != Choice::Kind::kFiltered) {
    if (choice.tile < first_tile || choice.tile >= end_tile) return;
    const int64_t id = id_of(row, choice, scratch);
    list.set_count(1);
    list.set(0, static_cast<int32_t>(id), row.raw.at(id), 0);
    return;
  }
  TM_ASSERT(row.filter.top_k > 0 && row.filter.top_k <= kShortlistMaxTopK, "row {} with top-k {} needs whole logits",
            row.row, row.filter.top_k);
  Candidates found(row, scratch);
  const float border = collect(row, choice, first_tile, end_tile, found);
  int64_t count = 0;
  for (int64_t i = 0; i < found.count; ++i) {
    if (found.scaled[i] < border) continue;
    if (count < list.capacity) list.set(count, found.ids[i], row.raw.at(found.ids[i]), found.scaled[i]);
    ++count;
  }
  list.set_count(count);
}

/// The lists of all ranks for one row.
struct ListsRow {
  const TensorView& lists;  // [P, R, words]
  int64_t row;

  template <typename Function>
  void for_each(Function&& function) const {
    for (int64_t p = 0; p < lists.size(0); ++p) {
      const ListRow list(lists, p * lists.size(1) + row);
      TM_ASSERT(list.count() <= list.capacity, "row {} has {} ids of rank {} in a list for {}", row, list.count(), p,
                list.capacity);
      for (int64_t i = 0; i < list.count(); ++i) function(list, i);
    }
  }
  float logit(int64_t id) const {
    float found = 0;
    for_each([&](const ListRow& list, int64_t i) {
      if (list.ids()[i] == id) found = ListRow::value(list.logits()[i]);
    });
    return found;
  }
  int64_t only_id() const {
    int64_t id = -1;
    for_each([&](const ListRow& list, int64_t i) { id = list.ids()[i]; });
    TM_ASSERT(id >= 0, "no rank has listed an id for row {}", row);
    return id;
  }
};

/// The candidates of all tiles as collect() finds them.
void gather(const PickRow& row, const ListsRow& lists, Candidates& found) {
  int64_t tile = 0;
  lists.for_each([&](const ListRow& list, int64_t i) {
    for (; tile < list.ids()[i] / kVocabTile; ++tile) found.ends[tile] = static_cast<int32_t>(found.count);
    found.ids[found.count] = list.ids()[i];
    found.scaled[found.count++] = ListRow::value(list.scaled()[i]);
  });
  for (; tile < row.num_tiles(); ++tile) found.ends[tile] = static_cast<int32_t>(found.count);
  row.kernels.weights(found.scaled, found.count, 0, 1, nullptr, found.weight);
}

}  // namespace

void CpuOps::do_pick(const PickResult& out, const HeadTiles& tiles, int64_t vocab_size, const StepTensors& step,
                     const SamplingTables& tables) {
  for_each_row(tiles.max.rows(), vocab_size / 16, [=, this](int64_t r, Scratch& scratch) {
    const PickRow row =
        make_row(isa_, tiles, r, vocab_size, RowLogits::whole(tiles.logits, r, vocab_size), step, tables);
    const auto id = [&](const Choice& choice) {
      if (choice.kind != Choice::Kind::kFiltered) return id_of(row, choice, scratch);
      Candidates found(row, scratch);
      collect(row, choice, 0, row.num_tiles(), found);
      return draw(row, found);
    };
    store(pick_row(row, id, [&](int64_t chosen) { return row.raw.at(chosen); }), out, row,
          step.rows.slots.as<int32_t>()[r], tables);
  });
}

void CpuOps::do_shortlist(TensorView list, const HeadTiles& tiles, int64_t first_id, int64_t vocab_size,
                          const StepTensors& step, const SamplingTables& tables) {
  const int64_t num_ids = tiles.logits.cols(), first_tile = first_id / kVocabTile;
  const int64_t end_tile = num_ids == 0 ? first_tile : (first_id + num_ids + kVocabTile - 1) / kVocabTile;
  for_each_row(tiles.max.rows(), num_ids / 16, [=, this](int64_t r, Scratch& scratch) {
    const RowLogits raw = RowLogits::shard(tiles.logits, r, first_id, vocab_size);
    list_row(make_row(isa_, tiles, r, vocab_size, raw, step, tables), first_tile, end_tile, ListRow(list, r), scratch);
  });
}

bool CpuOps::do_shortlists_fit(TensorView lists) {
  stream_.synchronize();
  for (int64_t r = 0; r < lists.rows(); ++r) {
    const ListRow list(lists, r);
    if (list.count() > list.capacity) return false;
  }
  return true;
}

void CpuOps::do_pick_listed(const PickResult& out, const HeadTiles& tiles, TensorView lists, int64_t vocab_size,
                            const StepTensors& step, const SamplingTables& tables) {
  for_each_row(tiles.max.rows(), lists.size(0) * lists.cols() / 4, [=, this](int64_t r, Scratch& scratch) {
    const PickRow row = make_row(isa_, tiles, r, vocab_size, {}, step, tables);
    const ListsRow listed{lists, r};
    const auto id = [&](const Choice& choice) {
      if (choice.kind != Choice::Kind::kFiltered) return listed.only_id();
      Candidates found(row, scratch);
      gather(row, listed, found);
      return draw(row, found);
    };
    store(pick_row(row, id, [&](int64_t chosen) { return listed.logit(chosen); }), out, row,
          step.rows.slots.as<int32_t>()[r], tables);
  });
}

}  // namespace tokenmill::cpu
