#include "tests/support/paged_sequences.h"

#include <numeric>

namespace tokenmill::test {
namespace {

TensorView canonical_view(std::vector<std::byte>& bytes, DType dtype) {
  return TensorView(bytes.data(), dtype, {static_cast<int64_t>(bytes.size()) / dtype_size(dtype)});
}

}  // namespace

PagedSequences::PagedSequences(Ops& ops, const KvSpec& spec, int64_t num_sequences, int64_t max_length, double poison)
    : ops_(ops), spec_(spec), blocks_per_sequence_((max_length + spec.block_size - 1) / spec.block_size) {
  const int64_t num_blocks = num_sequences * blocks_per_sequence_;
  storage_ = ops.memory().allocate(num_blocks * ops.kv_block_bytes(spec));
  pool_ = ops.make_kv_pool(spec, num_blocks, storage_.bytes());
  blocks_.resize(static_cast<size_t>(num_blocks));
  std::iota(blocks_.begin(), blocks_.end(), 0);
  Random random(99);
  for (size_t i = blocks_.size(); i > 1; --i) {
    std::swap(blocks_[i - 1], blocks_[static_cast<size_t>(random.index(static_cast<int64_t>(i)))]);
  }
  // Every byte pattern of the storage, gaps of the layout included.
  HostTensor all(spec.dtype, {storage_.num_bytes() / dtype_size(spec.dtype)});
  all.fill(poison);
  ops.stream().copy(storage_.data(), all.view().data(), storage_.num_bytes());
  ops.stream().synchronize();
}

int32_t PagedSequences::block_of(int64_t sequence, int64_t token) const {
  return blocks_[static_cast<size_t>(sequence * blocks_per_sequence_ + token / spec_.block_size)];
}

const StepTensors& PagedSequences::step(const std::vector<SequenceInput>& inputs) {
  const auto num_sequences = static_cast<int64_t>(inputs.size());
  int64_t tokens = 0;
  for (const SequenceInput& input : inputs) tokens += input.tokens;
  tensors_.clear();
  const auto make = [&](DType dtype, std::initializer_list<int64_t> shape) -> HostTensor& {
    return tensors_.emplace_back(dtype, shape);
  };
  tensors_.reserve(8);
  HostTensor& ids = make(DType::kI32, {tokens});
  HostTensor& positions = make(DType::kI64, {tokens});
  HostTensor& cu_seqlens = make(DType::kI32, {num_sequences + 1});
  HostTensor& seq_lens = make(DType::kI64, {num_sequences});
  HostTensor& table = make(DType::kI32, {num_sequences, blocks_per_sequence_});
  HostTensor& slots = make(DType::kI64, {tokens});
  cu_seqlens.set(0, 0, 0);
  int64_t t = 0;
  for (int64_t s = 0; s < num_sequences; ++s) {
    const SequenceInput& input = inputs[static_cast<size_t>(s)];
    const int64_t length = input.context + input.tokens;
    for (int64_t p = input.context; p < length; ++p, ++t) {
      ids.set(0, t, 0);
      positions.set(0, t, static_cast<double>(p));
      slots.set(0, t, static_cast<double>(block_of(s, p) * spec_.block_size + p % spec_.block_size));
    }
    cu_seqlens.set(0, s + 1, static_cast<double>(t));
    seq_lens.set(0, s, static_cast<double>(length));
    for (int64_t b = 0; b < blocks_per_sequence_; ++b) {
      // Entries past the context are not looked at: an id outside the pool would show.
      table.set(s, b, b * spec_.block_size < length ? block_of(s, b * spec_.block_size) : 1 << 30);
    }
  }
  step_ = StepTensors{};
  step_.token_ids = ids;
  step_.positions = positions;
  step_.cu_seqlens = cu_seqlens;
  step_.seq_lens = seq_lens;
  step_.groups[0] = {.block_table = table, .slot_mapping = slots};
  step_.num_groups = 1;
  return step_;
}

double PagedSequences::stored(int64_t sequence, int64_t layer, bool key, int64_t token, int64_t head, int64_t dim) {
  std::vector<std::byte> bytes(static_cast<size_t>(canonical_block_bytes(spec_)));
  const int32_t ids[] = {block_of(sequence, token)};
  ops_.export_blocks(*pool_, ids, bytes);
  const int64_t heads = spec_.num_kv_heads, width = key ? spec_.k_dim : spec_.v_dim;
  const int64_t layer_values = spec_.block_size * heads * (spec_.k_dim + spec_.v_dim);
  const int64_t begin = layer * layer_values + (key ? 0 : spec_.block_size * heads * spec_.k_dim);
  const int64_t index = begin + (token % spec_.block_size * heads + head) * width + dim;
  return HostTensor::get_at(canonical_view(bytes, spec_.dtype), 0, index);
}

double PagedSequences::stored_key(int64_t sequence, int64_t layer, int64_t token, int64_t head, int64_t dim) {
  return stored(sequence, layer, true, token, head, dim);
}

double PagedSequences::stored_value(int64_t sequence, int64_t layer, int64_t token, int64_t head, int64_t dim) {
  return stored(sequence, layer, false, token, head, dim);
}

}  // namespace tokenmill::test
