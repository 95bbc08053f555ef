// Decode of sequences that share KV blocks: one item reads a split's blocks for the rows of all of them. The bits are
// those of sequences that have everything to themselves.
#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "tests/kernels/cuda/planned_attention.h"
#include "tests/support/attention_sequences.h"
#include "tests/support/cuda_device.h"

using namespace tokenmill;
using test::AttentionShape;
using test::copy_rows;
using test::HostTensor;
using test::PagedSequences;
using test::SequenceInput;

namespace {

using Bits = std::vector<std::byte>;

struct Backend {
  std::string name;
  cuda::AttentionTiles tiles;
  bool has_heads_of(int64_t dim) const { return name == "paged_mma" || dim == 64 || dim == 128; }
};

std::vector<Backend> backends(Device device) {
  std::vector<Backend> all = {{"paged_mma", {.rows = 64, .small_rows = 16, .split = 512}}};
  if (make_ops(device, {})->describe().find("paged_wgmma") != std::string::npos) {
    all.push_back({"paged_wgmma", {.rows = 128, .small_rows = 64, .split = 1024}});
  }
  return all;
}

constexpr int kAlone = 1, kMany = 1000;  // mates

std::unique_ptr<Ops> make_backend(Device device, const Backend& backend, int mates,
                                  int64_t part_bytes = int64_t{8} << 20) {
  OpsOptions options;
  options.attention_backend = backend.name;
  options.attention_part_bytes = part_bytes;
  options.attention_mates = mates;
  return make_ops(device, options);
}

/// A sequence whose first `common` tokens are those of the member `like`.
struct Member {
  int64_t length;
  int64_t like = 0, common = 0;
};

/// Sequences of which every one has all keys and values in blocks of its own. Their last tokens are computed with
/// these, or with the blocks of others where they have the tokens in common.
class Family {
 public:
  static constexpr int64_t kPadding = 2;  // sequences of no tokens behind the members
  static constexpr int kGroup = 1;

  /// ops: that stores; others: that will compute too.
  Family(Ops& ops, const AttentionShape& shape, DType dtype, std::vector<Member> members,
         std::initializer_list<Ops*> others = {})
      : shape_(shape),
        dtype_(dtype),
        members_(std::move(members)),
        paged_(ops, test::spec_of(shape, dtype), static_cast<int64_t>(members_.size()) + kPadding, longest(), NAN) {
    std::vector<SequenceInput> whole;
    std::vector<int64_t> first_row;
    int64_t tokens = 0;
    for (const Member& member : members_) {
      first_row.push_back(tokens);
      whole.push_back({0, member.length});
      tokens += member.length;
    }
    HostTensor q(dtype, {tokens, shape.heads * shape.k_dim}), k(dtype, {tokens, shape.kv_heads * shape.k_dim}),
        v(dtype, {tokens, shape.kv_heads * shape.v_dim}), cos_sin(DType::kF32, {tokens, 0});
    k.fill_random(random_, -2, 2);
    v.fill_random(random_);
    for (size_t i = 0; i < members_.size(); ++i) {
      for (const HostTensor* stored : {&k, &v}) {
        copy_rows(*stored, first_row[static_cast<size_t>(members_[i].like)], *stored, first_row[i], members_[i].common);
      }
    }
    const StepTensors& step = paged_.step(whole);
    ops.plan(step);
    ops.rope_and_store_kv({.q = q, .k = k, .v = v, .cos_sin = cos_sin}, step, {&paged_.pool(), 1, 0});
    ops.stream().synchronize();
    // A backend takes the memory that such heads need with their pool.
    for (Ops* other : others) const PagedSequences taken(*other, test::spec_of(shape, dtype), 1, 1, NAN);
  }

  /// Makes a step of every member's last `tokens` tokens, all in blocks of their own.
  void make_step(int64_t tokens) {
    std::vector<SequenceInput> inputs;
    for (const Member& member : members_) inputs.push_back({member.length - tokens, tokens});
    inputs.resize(inputs.size() + kPadding);
    step_ = paged_.step(inputs);
    const int64_t rows = tokens * static_cast<int64_t>(members_.size());
    q_.emplace(dtype_, std::initializer_list<int64_t>{rows, shape_.heads * shape_.k_dim}).fill_random(random_, -2, 2);
    out_.emplace(dtype_, std::initializer_list<int64_t>{rows, shape_.heads * shape_.v_dim});
    // The layer's blocks are those of the second group; in the first one's table all sequences look alike.
    const TensorView table = step_.groups[0].block_table;
    alike_.emplace(DType::kI32, std::initializer_list<int64_t>{table.rows(), table.cols()}).fill(0);
    step_.groups[1] = step_.groups[0];
    step_.groups[0].block_table = *alike_;
    step_.num_groups = 2;
    own_table_.assign(table.as<int32_t>(), table.as<int32_t>() + table.num_elements());
  }
  /// From now on the step reads the first `tokens` tokens of a member from the blocks of another, as that one does.
  void share(size_t member, int64_t like, int64_t tokens) {
    for (int64_t b = 0; b < tokens / shape_.block_size; ++b) table_of(member)[b] = table_of(like)[b];
  }
  void share_all() {
    for (size_t i = 0; i < members_.size(); ++i) share(i, members_[i].like, members_[i].common);
  }
  void share_nothing() { std::copy(own_table_.begin(), own_table_.end(), table_of(0)); }
  /// What a window has left is in no block any more.
  void forget_behind(int64_t window) {
    for (size_t i = 0; i < members_.size(); ++i) {
      for (int64_t b = 0; (b + 1) * shape_.block_size <= members_[i].length - window; ++b) table_of(i)[b] = 1 << 30;
    }
  }

  void attend(Ops& ops, const AttentionParams& params) {
    ops.plan(step_);
    ops.attention(*out_, *q_, step_, {&paged_.pool(), 1, kGroup}, params);
  }
  Bits bits_of(Ops& ops, const AttentionParams& params) {
    return bits_after(ops, [&] { attend(ops, params); });
  }
  template <typename Work>
  Bits bits_after(Ops& ops, Work&& work) {
    out_->fill(0);
    work();
    ops.stream().synchronize();
    return out_->bytes();
  }
  const StepTensors& step() const { return step_; }

  /// How many items of the step have rows of several members.
  int64_t num_shared(Device device, const Backend& backend, int64_t window = 0) const {
    const test::PlannedAttention plan =
        test::planned_attention(device,
                                {.tiles = backend.tiles,
                                 .group = static_cast<int32_t>(shape_.heads / shape_.kv_heads),
                                 .kv_group = kGroup,
                                 .block_size = static_cast<int32_t>(shape_.block_size),
                                 .max_parts = 1 << 20,
                                 .mates = kMany,
                                 .busy_items = 1,
                                 .window = window},
                                step_);
    return plan.num_shared();
  }

 private:
  int64_t longest() const {
    int64_t length = 0;
    for (const Member& member : members_) length = std::max(length, member.length);
    return length;
  }
  template <typename Index>
  int32_t* table_of(Index sequence) const {
    return step_.groups[kGroup].block_table.row<int32_t>(static_cast<int64_t>(sequence));
  }

  AttentionShape shape_;
  DType dtype_;
  std::vector<Member> members_;
  test::Random random_{7};
  PagedSequences paged_;
  StepTensors step_;
  std::vector<int32_t> own_table_;
  std::optional<HostTensor> q_, out_, alike_;
};

/// A tree over splits of s positions: the first is common to all, the second to two and two, the third nobody's.
std::vector<Member> tree(int64_t s) {
  return {{2 * s + 90}, {2 * s + 60, 0, 2 * s + 40}, {2 * s + 300, 0, s + 40}, {2 * s + 70, 2, 2 * s + 40}};
}

}  // namespace

TEST_CASE("sequences that share blocks get the bits of sequences that do not, in every shape of heads and blocks") {
  const auto device = test::cuda_device();
  if (!device) return;
  struct Case {
    AttentionShape shape;
    DType dtype;
    int64_t tokens;
    float softcap;
  };
  const Case cases[] = {{{1, 1, 64, 64, 16}, DType::kBF16, 1, 0},  {{4, 2, 64, 64, 48}, DType::kF16, 1, 0},
                        {{4, 1, 128, 128, 16}, DType::kF16, 1, 9}, {{8, 1, 64, 64, 128}, DType::kBF16, 2, 0},
                        {{3, 1, 96, 96, 48}, DType::kBF16, 2, 0},  {{8, 1, 256, 256, 16}, DType::kF16, 1, 0}};
  for (const Backend& backend : backends(*device)) {
    CAPTURE(backend.name);
    const auto alone = make_backend(*device, backend, kAlone), some = make_backend(*device, backend, 0),
               many = make_backend(*device, backend, kMany);
    for (const Case& c : cases) {
      if (!backend.has_heads_of(c.shape.k_dim)) continue;
      CAPTURE(c.shape.heads);
      CAPTURE(c.shape.k_dim);
      CAPTURE(c.shape.block_size);
      const AttentionParams params{0.2f, 0, c.softcap};
      Family family(*alone, c.shape, c.dtype, tree(backend.tiles.split), {some.get(), many.get()});
      family.make_step(c.tokens);
      CHECK(family.num_shared(*device, backend) == 0);
      const Bits want = family.bits_of(*alone, params);
      family.share_all();
      CHECK(family.num_shared(*device, backend) == 3);
      CHECK(family.bits_of(*many, params) == want);
      if (&c != cases) continue;
      CHECK(family.bits_of(*alone, params) == want);
      CHECK(family.bits_of(*some, params) == want);
    }
  }
}

TEST_CASE("sequences share blocks within a window as far as all of them see a split in whole") {
  const auto device = test::cuda_device();
  if (!device) return;
  for (const Backend& backend : backends(*device)) {
    CAPTURE(backend.name);
    const auto alone = make_backend(*device, backend, kAlone), many = make_backend(*device, backend, kMany);
    const int64_t s = backend.tiles.split;
    Family family(*alone, {2, 1, 64, 64, 16}, DType::kBF16,
                  {{3 * s + 164}, {3 * s + 154, 0, 3 * s + 128}, {3 * s + 264, 0, 3 * s + 128}}, {many.get()});
    // The first two see from shortly before the third split on, the last one sees none before its own in whole.
    for (const auto& [window, shared] : {std::pair<int64_t, int64_t>{s + 188, 1}, {s - 30, 0}, {4 * s, 3}}) {
      CAPTURE(window);
      const AttentionParams params{0.2f, window, 0};
      family.make_step(1);
      family.forget_behind(window);
      const Bits want = family.bits_of(*alone, params);
      family.share_nothing();
      family.share_all();
      family.forget_behind(window);
      CHECK(family.num_shared(*device, backend, window) == shared);
      CHECK(family.bits_of(*many, params) == want);
    }
  }
}

TEST_CASE(
    "sequences that share blocks keep their bits in large tiles, without room for all, and apart from each other") {
  const auto device = test::cuda_device();
  if (!device) return;
  for (const Backend& backend : backends(*device)) {
    CAPTURE(backend.name);
    const AttentionShape shape{8, 1, 64, 64, 16};
    const auto alone = make_backend(*device, backend, kAlone), many = make_backend(*device, backend, kMany);
    const int64_t s = backend.tiles.split;
    std::vector<Member> members(9, {s + 90, 0, s});
    members[0].common = 0;
    // Five members' 16 rows of 2 splits, 66 floats each: the others' splits are not computed apart.
    const auto few = make_backend(*device, backend, kMany, int64_t{5} * 16 * 2 * 66 * 4 + 100);
    Family family(*alone, shape, DType::kBF16, members, {many.get(), few.get()});
    family.make_step(2);
    const AttentionParams params{0.2f, 0, 0};
    const Bits want = family.bits_of(*alone, params);
    for (const size_t member : {2, 4, 6, 8}) family.share(member, 0, s);  // apart from each other
    CHECK(family.num_shared(*device, backend) == 0);
    family.share(5, 0, s);
    CHECK(family.num_shared(*device, backend) == 1);
    CHECK(family.bits_of(*many, params) == want);
    family.share_all();
    CHECK(family.num_shared(*device, backend) == (backend.tiles.rows == 64 ? 2 : 1));  // 4 + 4 + 1, or 8 + 1
    CHECK(family.bits_of(*many, params) == want);
    CHECK(family.bits_of(*few, params) == want);
  }
}

TEST_CASE("a recorded step finds anew which sequences share blocks when it is replayed") {
  const auto device = test::cuda_device();
  if (!device) return;
  for (const Backend& backend : backends(*device)) {
    CAPTURE(backend.name);
    const auto ops = make_backend(*device, backend, kMany);
    Family family(*ops, {4, 2, 64, 64, 16}, DType::kBF16, tree(backend.tiles.split));
    family.make_step(1);
    const AttentionParams params{0.2f, 0, 0};
    const Bits want = family.bits_of(*ops, params);
    ops->stream().begin_capture();
    family.attend(*ops, params);
    const auto recording = ops->stream().end_capture();
    const auto replayed = [&] { return family.bits_after(*ops, [&] { ops->stream().replay(*recording); }); };
    CHECK(replayed() == want);
    family.share_all();
    CHECK(family.num_shared(*device, backend) == 3);
    CHECK(replayed() == want);
    family.share_nothing();
    family.share(1, 0, backend.tiles.split);
    CHECK(family.num_shared(*device, backend) == 1);
    CHECK(replayed() == want);
    // One member less: its place is padding, and its row stays as it is.
    auto* cu_seqlens = family.step().cu_seqlens.as<int32_t>();
    std::fill(cu_seqlens + 4, cu_seqlens + 5 + Family::kPadding, 3);
    family.share_all();
    const Bits got = replayed();
    const auto row = static_cast<std::ptrdiff_t>(want.size() / 4);
    CHECK(std::equal(got.begin(), got.end() - row, want.begin()));
    CHECK(std::all_of(got.end() - row, got.end(), [](std::byte b) { return b == std::byte{0}; }));
  }
}
