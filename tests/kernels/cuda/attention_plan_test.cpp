// The work lists of attention against a plain planner, and which sequences share an item.
#include "kernels/cuda/attention_plan.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <tuple>
#include <utility>

#include "tests/kernels/cuda/planned_attention.h"
#include "tests/support/cuda_device.h"
#include "tests/support/random.h"

using namespace tokenmill;
using cuda::AttentionItem;
using cuda::AttentionShape;
using test::HostTensor;
using test::PlannedAttention;

namespace {

/// One sequence's part in a step, and its blocks.
struct Planned {
  int64_t context = 0, tokens = 0;
  std::vector<int32_t> blocks;
};

constexpr int32_t kSplit = 64;  // small: the planner knows nothing of the backends' sizes
constexpr int32_t kBlock = 16;  // unless the shape says another

AttentionShape shape_of(int32_t group) {
  return {.tiles = {.rows = 64, .small_rows = 16, .split = kSplit},
          .group = group,
          .kv_group = 0,
          .block_size = kBlock,
          .max_parts = 1 << 20,
          .mates = 0,
          .busy_items = 1,
          .window = 0};
}

/// What the planner reads of a step.
struct Step {
  explicit Step(const std::vector<Planned>& sequences, int64_t table_width)
      : positions(DType::kI64, {num_tokens(sequences)}),
        cu_seqlens(DType::kI32, {static_cast<int64_t>(sequences.size()) + 1}),
        seq_lens(DType::kI64, {static_cast<int64_t>(sequences.size())}),
        table(DType::kI32, {static_cast<int64_t>(sequences.size()), table_width}) {
    int64_t t = 0;
    cu_seqlens.set(0, 0, 0);
    for (size_t s = 0; s < sequences.size(); ++s) {
      const auto row = static_cast<int64_t>(s);
      for (int64_t i = 0; i < sequences[s].tokens; ++i, ++t) {
        positions.set(0, t, static_cast<double>(sequences[s].context + i));
      }
      cu_seqlens.set(0, row + 1, static_cast<double>(t));
      for (int64_t b = 0; b < table_width; ++b) {
        const bool known = b < static_cast<int64_t>(sequences[s].blocks.size());
        table.set(row, b, known ? sequences[s].blocks[static_cast<size_t>(b)] : 7);  // stale, and equal
      }
    }
    tensors.positions = positions;
    tensors.cu_seqlens = cu_seqlens;
    tensors.seq_lens = seq_lens;
    tensors.groups[0].block_table = table;
    tensors.num_groups = 1;
  }
  static int64_t num_tokens(const std::vector<Planned>& sequences) {
    return std::accumulate(sequences.begin(), sequences.end(), int64_t{0},
                           [](int64_t sum, const Planned& s) { return sum + s.tokens; });
  }
  HostTensor positions, cu_seqlens, seq_lens, table;
  StepTensors tensors;
};

constexpr int64_t kTableWidth = 64;

PlannedAttention plan_of(Device device, const AttentionShape& shape, const std::vector<Planned>& sequences) {
  const Step step(sequences, kTableWidth);
  return test::planned_attention(device, shape, step.tensors);
}

/// Splits as the plain planner sees them.
struct Splits {
  int64_t rows = 0, first = 0, count = 0, whole_begin = 0, whole_end = 0;
  bool apart = false;
};

std::vector<Splits> splits_of(const AttentionShape& shape, const std::vector<Planned>& sequences) {
  std::vector<Splits> all;
  int64_t parts = 0;
  for (const Planned& s : sequences) {
    Splits& own = all.emplace_back();
    own.rows = s.tokens * shape.group;
    if (own.rows == 0 || own.rows > cuda::kSmallRows) continue;
    const auto sees_from = [&](int64_t p) { return shape.window > 0 ? std::max<int64_t>(0, p + 1 - shape.window) : 0; };
    const int64_t last = s.context + s.tokens - 1;
    own.first = sees_from(s.context) / kSplit;
    const int64_t count = last / kSplit - own.first + 1;
    if (count < 2) continue;
    own.count = count;
    while (own.whole_begin * kSplit < sees_from(last)) ++own.whole_begin;
    while ((own.whole_end + 1) * kSplit <= s.context + 1) ++own.whole_end;
    own.apart = parts + count * own.rows <= shape.max_parts;
    parts += count * own.rows;
  }
  return all;
}

bool same_blocks(const Planned& a, const Planned& b, int64_t split, int64_t block_size) {
  for (int64_t p = split * kSplit; p < (split + 1) * kSplit; ++p) {
    const auto block = static_cast<size_t>(p / block_size);
    if (a.blocks.at(block) != b.blocks.at(block)) return false;
  }
  return true;
}

using Item = std::tuple<int64_t, int64_t, int64_t, int64_t>;  // sequence, first row, rows, split

/// The items of a step, sequence after sequence and split after split.
std::multiset<Item> expected_items(const AttentionShape& shape, const std::vector<Planned>& sequences) {
  const std::vector<Splits> splits = splits_of(shape, sequences);
  std::multiset<Item> items;
  int64_t all_splits = 0;
  std::map<std::pair<size_t, int64_t>, bool> joined;
  for (size_t i = 0; i < splits.size(); ++i) {
    const Splits& own = splits[i];
    if (!own.apart) {
      for (int64_t row = 0; row < own.rows; row += shape.tiles.rows) {
        items.emplace(i, row, std::min<int64_t>(shape.tiles.rows, own.rows - row), -1);
      }
      continue;
    }
    all_splits += own.count;
    if (shape.mates == 1 || i % 32 == 0 || !splits[i - 1].apart || splits[i - 1].rows != own.rows) continue;
    for (int64_t s = std::max(own.whole_begin, splits[i - 1].whole_begin);
         s < std::min(own.whole_end, splits[i - 1].whole_end) &&
         same_blocks(sequences[i], sequences[i - 1], s, shape.block_size);
         ++s) {
      joined[{i, s}] = true;
    }
  }
  for (size_t i = 0; i < splits.size(); ++i) {
    if (!splits[i].apart) continue;
    const int64_t rows = splits[i].rows, fitting = shape.tiles.rows / rows;
    const int64_t wanted =
        shape.mates > 0 ? shape.mates : std::max<int64_t>(shape.tiles.small_rows / rows, all_splits / shape.busy_items);
    const int64_t most = std::min(fitting, wanted);
    for (int64_t s = splits[i].first; s < splits[i].first + splits[i].count; ++s) {
      if (joined[{i, s}]) continue;
      for (size_t j = i; j == i || joined[{j, s}];) {  // a run begins here
        int64_t mates = 1;
        while (mates < most && joined[{j + static_cast<size_t>(mates), s}]) ++mates;
        items.emplace(j, 0, mates * rows, s);
        j += static_cast<size_t>(mates);
      }
    }
  }
  return items;
}

void check_plan(Device device, const AttentionShape& shape, const std::vector<Planned>& sequences) {
  const PlannedAttention plan = plan_of(device, shape, sequences);
  const std::vector<Splits> splits = splits_of(shape, sequences);
  std::multiset<Item> got;
  std::set<int64_t> parts;
  for (const AttentionItem& item : plan.items) {
    got.emplace(item.sequence, item.first_row, item.num_rows, item.split);
    CHECK(item.rows_each == splits[static_cast<size_t>(item.sequence)].rows);
    if (item.split < 0) continue;
    // Every row of every split has its own part, where the merge looks for it.
    const cuda::AttentionParts to{nullptr, nullptr, plan.shares.data()};
    for (int row = 0; row < item.num_rows; ++row) {
      const auto sequence = static_cast<size_t>(item.sequence + row / item.rows_each);
      const auto merge = std::find_if(plan.merges.begin(), plan.merges.end(),
                                      [&](const auto& m) { return m.sequence == static_cast<int>(sequence); });
      REQUIRE(merge != plan.merges.end());
      const int64_t part =
          merge->first_part + (item.split - splits[sequence].first) * merge->num_rows + row % item.rows_each;
      REQUIRE(to.of(item, row, 2, 3) == 3 * part + 2);
      REQUIRE(parts.insert(part).second);
      REQUIRE(part < shape.max_parts);
    }
  }
  CHECK(got == expected_items(shape, sequences));
  int64_t num_parts = 0;
  for (const cuda::AttentionMerge& merge : plan.merges) num_parts += int64_t{merge.num_rows} * merge.num_splits;
  CHECK(static_cast<int64_t>(parts.size()) == num_parts);
}

/// Sequences of random lengths whose blocks begin, often, as those of one before.
std::vector<Planned> random_sequences(test::Random& random, const AttentionShape& shape) {
  std::vector<Planned> sequences(static_cast<size_t>(1 + random.index(80)));
  int32_t next = 0;
  for (size_t i = 0; i < sequences.size(); ++i) {
    Planned& own = sequences[i];
    own.context = random.index(random.index(4) == 0 ? 60 : 980);
    own.tokens = random.index(8) == 0 ? random.index(33) : 1 + random.index(2);
    if (own.tokens * shape.group > 160) own.tokens = 1;
    const int64_t needed = (own.context + own.tokens + shape.block_size - 1) / shape.block_size;
    if (i > 0 && random.index(4) > 0) {
      const Planned& like =
          sequences[random.index(5) == 0 ? static_cast<size_t>(random.index(static_cast<int64_t>(i))) : i - 1];
      const auto common = std::min<int64_t>(
          {needed, static_cast<int64_t>(like.blocks.size()), random.index(3) == 0 ? random.index(needed) : needed});
      own.blocks.assign(like.blocks.begin(), like.blocks.begin() + common);
    }
    while (static_cast<int64_t>(own.blocks.size()) < needed) own.blocks.push_back(next++);
  }
  return sequences;
}

/// A decoding sequence after `length` tokens, in blocks that are those of another up to `common` tokens.
Planned decoding(int64_t length, int32_t first_block, const Planned* like = nullptr, int64_t common = 0) {
  Planned s{.context = length - 1, .tokens = 1, .blocks = {}};
  for (int64_t b = 0; b * kBlock < length; ++b) {
    s.blocks.push_back(b * kBlock < common ? like->blocks[static_cast<size_t>(b)] : first_block++);
  }
  return s;
}

}  // namespace

TEST_CASE("attention's plan of random steps is that of a plain planner") {
  const auto device = test::cuda_device();
  if (!device) return;
  test::Random random(5);
  for (int round = 0; round < 60; ++round) {
    CAPTURE(round);
    constexpr int32_t kGroups[] = {1, 2, 3, 4, 8, 16, 20};
    AttentionShape shape = shape_of(kGroups[round % 7]);
    if (round % 3 == 1) shape.window = 1 + random.index(700);
    if (round % 4 == 2) shape.max_parts = static_cast<int32_t>(random.index(2000));
    if (round % 5 > 1) shape.busy_items = static_cast<int32_t>(1 + random.index(200));
    if (round % 2 == 1) shape.block_size = 48;
    if (round % 5 == 1) shape.mates = static_cast<int32_t>(1 + random.index(20));
    check_plan(*device, shape, random_sequences(random, shape));
  }
}

TEST_CASE("sequences that stand side by side share the splits that lie in the same blocks") {
  const auto device = test::cuda_device();
  if (!device) return;
  // Three splits of all four, two more of the first two and of the last two, and the rest their own: 8 splits each.
  const Planned a = decoding(500, 0), b = decoding(510, 100, &a, 5 * kSplit), c = decoding(500, 200, &a, 3 * kSplit),
                d = decoding(450, 300, &c, 5 * kSplit + kBlock);
  const PlannedAttention plan = plan_of(*device, shape_of(4), {a, b, c, d});
  CHECK(plan.num_shared() == 3 + 2 * 2);
  CHECK(plan.items.size() == 3 + 2 * 2 + 4 * 3);
  CHECK(plan.merges.size() == 4);
  SUBCASE("and none where another stands between them, where rows differ, or past what one of them sees") {
    CHECK(plan_of(*device, shape_of(4), {a, decoding(500, 400), b}).num_shared() == 0);
    Planned two_tokens = b;
    two_tokens.tokens = 2;
    CHECK(plan_of(*device, shape_of(4), {a, two_tokens}).num_shared() == 0);
    CHECK(plan_of(*device, shape_of(4), {a, decoding(4 * kSplit - 1, 400, &a, 3 * kSplit)}).num_shared() == 3);
    CHECK(plan_of(*device, shape_of(4), {a, decoding(4 * kSplit - 1, 400, &a, 4 * kSplit - 1)}).num_shared() == 3);
    CHECK(plan_of(*device, shape_of(4), {a, decoding(4 * kSplit, 400, &a, 4 * kSplit)}).num_shared() == 4);
  }
  SUBCASE("and of a window those that both see in whole") {
    AttentionShape shape = shape_of(4);
    shape.window = 250;  // a sees from 250 on, b from 260
    CHECK(plan_of(*device, shape, {a, b}).num_shared() == 0);
    shape.window = 255;
    CHECK(plan_of(*device, shape, {a, decoding(510, 100, &a, 6 * kSplit)}).num_shared() == 2);
  }
  SUBCASE("and as many of them as a tile has rows for, or fewer where that left parts of the device idle") {
    std::vector<Planned> many(40, decoding(3 * kSplit + 1, 0));
    const auto sizes = [&](int32_t group, int32_t busy_items, int32_t mates = 0) {
      AttentionShape shape = shape_of(group);
      shape.busy_items = busy_items;
      shape.mates = mates;
      std::vector<int64_t> rows;
      for (const AttentionItem& item : plan_of(*device, shape, many).items) {
        if (item.split == 0) rows.push_back(item.num_rows);
      }
      std::sort(rows.begin(), rows.end());
      return rows;
    };
    using Rows = std::vector<int64_t>;
    CHECK(sizes(4, 1) == Rows{32, 64, 64});
    CHECK(sizes(1, 1) == Rows{8, 32});  // none beyond the 32nd
    CHECK(sizes(16, 1) == Rows(10, 64));
    CHECK(sizes(16, 80) == Rows(20, 32));
    CHECK(sizes(16, 1000) == Rows(40, 16));
    CHECK(sizes(4, 1000) == Rows(10, 16));
    CHECK(sizes(4, 1000, 8) == Rows(5, 32));
    CHECK(sizes(4, 1, 1) == Rows(40, 4));
  }
}
