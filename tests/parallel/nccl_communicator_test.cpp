#include "parallel/nccl_communicator.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <vector>

#include "parallel/device_group.h"
#include "parallel/transfer_group.h"
#ifdef TOKENMILL_CUDA_EMULATED
#include "kernels/emulation/runtime.h"
#endif

namespace tokenmill::parallel {
namespace {

/// Device memory of a tensor that is n elements for each of `parts` ranks.
class Tensor {
 public:
  Tensor(DeviceGroup& group, DType dtype, int64_t parts, int64_t n)
      : group_(group),
        device_(group.memory.allocate(std::max<int64_t>(1, parts * n * dtype_size(dtype)))),
        parts_(device_.data(), dtype, {parts, n}, /*is_host=*/false),
        flat_(device_.data(), dtype, {parts * n}, /*is_host=*/false) {}
  TensorView parts() const { return parts_; }
  TensorView flat() const { return flat_; }
  void set(const std::vector<uint8_t>& bytes) {
    group_.stream.copy(device_.data(), bytes.data(), static_cast<int64_t>(bytes.size()));
    group_.stream.synchronize();
  }
  std::vector<uint8_t> get() const {
    std::vector<uint8_t> bytes(static_cast<size_t>(flat_.num_bytes()));
    group_.stream.copy(bytes.data(), device_.data(), static_cast<int64_t>(bytes.size()));
    group_.stream.synchronize();
    return bytes;
  }

 private:
  DeviceGroup& group_;
  Buffer device_;
  TensorView parts_, flat_;
};

constexpr int kEveryone = 99;  // a message's receiver when all get the same

std::vector<uint8_t> messages(int64_t bytes, int id, int size, const std::function<std::pair<int, int>(int)>& from_to) {
  std::vector<uint8_t> all;
  for (int other = 0; other < size; ++other) {
    const auto [from, to] = from_to(other);
    const std::vector<uint8_t> one = message(bytes, id, from, to);
    all.insert(all.end(), one.begin(), one.end());
  }
  return all;
}

void check_exchange(DeviceGroup& group, DType dtype, int64_t n, int id) {
  const int64_t bytes = n * dtype_size(dtype);
  const int here = group.rank(), size = group.size();
  Tensor sent(group, dtype, size, n), received(group, dtype, size, n);
  sent.set(messages(bytes, id, size, [&](int other) { return std::pair(here, other); }));
  group->wait(group->exchange(received.parts(), sent.parts()));
  CHECK(received.get() == messages(bytes, id, size, [&](int other) { return std::pair(other, here); }));
}

void check_all_gather(DeviceGroup& group, DType dtype, int64_t n, int id, bool in_place) {
  const int64_t bytes = n * dtype_size(dtype);
  const int here = group.rank(), size = group.size();
  Tensor part(group, dtype, 1, n), all(group, dtype, size, n);
  const std::vector<uint8_t> mine = message(bytes, id, here, kEveryone);
  part.set(mine);
  TensorView from = part.flat();
  if (in_place) {
    from = all.flat().slice_rows(here * n, n);
    group.stream.copy(from.data(), part.flat().data(), bytes);
  }
  group->wait(group->all_gather(all.parts(), from));
  CHECK(all.get() == messages(bytes, id, size, [&](int other) { return std::pair(other, kEveryone); }));
}

void check_broadcast(DeviceGroup& group, DType dtype, int64_t n, int id) {
  const std::vector<uint8_t> expected = message(n * dtype_size(dtype), id, id % group.size(), kEveryone);
  Tensor tensor(group, dtype, 1, n);
  if (id % group.size() == group.rank()) tensor.set(expected);
  group->wait(group->broadcast(tensor.flat(), id % group.size()));
  CHECK(tensor.get() == expected);
}

/// Round the ring; rank 0 receives first, so that no circle of ranks waits.
void check_send(DeviceGroup& group, DType dtype, int64_t n, int id) {
  const int64_t bytes = n * dtype_size(dtype);
  const int here = group.rank(), next = (here + 1) % group.size(), previous = (here + group.size() - 1) % group.size();
  Tensor sent(group, dtype, 1, n), received(group, dtype, 1, n);
  sent.set(message(bytes, id, here, next));
  if (here == 0) group->wait(group->recv(received.flat(), previous));
  const auto transfer = group->send(sent.flat(), next);
  if (here != 0) group->wait(group->recv(received.flat(), previous));
  group->wait(transfer);
  CHECK(received.get() == message(bytes, id, previous, here));
}

TEST_CASE("every kind moves every dtype at every size") {
  DeviceGroup group;
  CHECK(group->size() == group.size());
  CHECK(group->rank() == group.rank());
  int id = 0;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kI64, DType::kU8})
    for (const int64_t n : {0, 1, 31, 4096, 100003}) {
      CAPTURE(to_string(dtype));
      CAPTURE(n);
      ++id;
      check_exchange(group, dtype, n, id);
      check_all_gather(group, dtype, n, id, /*in_place=*/false);
      check_all_gather(group, dtype, n, id, /*in_place=*/true);
      check_broadcast(group, dtype, n, id);
      check_send(group, dtype, n, id);
    }
}

TEST_CASE("transfers come behind the work before them and may be waited for in any order") {
  DeviceGroup group;
  const int size = group.size();
  constexpr int64_t kBytes = 5000;
  Tensor first(group, DType::kU8, 1, kBytes), second(group, DType::kU8, 1, kBytes), all_first(group, DType::kU8, size, kBytes),
      all_second(group, DType::kU8, size, kBytes), after(group, DType::kU8, size, kBytes);
  Tensor source(group, DType::kU8, 1, kBytes);
  source.set(message(kBytes, 1, group.rank(), kEveryone));
  group.stream.copy(first.flat().data(), source.flat().data(), kBytes);
  const auto transfer = group->all_gather(all_first.parts(), first.flat());
  group.stream.copy(second.flat().data(), source.flat().data(), kBytes);
  const auto later = group->all_gather(all_second.parts(), second.flat());
  group->wait(later);
  group->wait(transfer);
  group.stream.copy(after.flat().data(), all_first.flat().data(), kBytes * size);
  const auto expected = messages(kBytes, 1, size, [&](int other) { return std::pair(other, kEveryone); });
  CHECK(after.get() == expected);
  CHECK(all_second.get() == expected);
}

TEST_CASE("a capture of transfers and their waits is replayed with what lies in its tensors then") {
  DeviceGroup group;
  const int size = group.size();
  Tensor mine(group, DType::kI32, 1, 5), all(group, DType::kI32, size, 5), back(group, DType::kI32, size, 5);
  check_all_gather(group, DType::kI32, 5, 1, /*in_place=*/false);
  group.stream.begin_capture();
  group->wait(group->all_gather(all.parts(), mine.flat()));
  group->wait(group->exchange(back.parts(), all.parts()));
  const auto recording = group.stream.end_capture();
  for (int round = 1; round <= 3; ++round) {
    mine.set(message(20, round, group.rank(), kEveryone));
    group.stream.replay(*recording);
    CHECK(all.get() == messages(20, round, size, [&](int other) { return std::pair(other, kEveryone); }));
    CHECK(back.get() == messages(20, round, size, [&](int) { return std::pair(group.rank(), kEveryone); }));
  }
}

TEST_CASE("memory of the host is refused") {
  DeviceGroup group;
  std::vector<uint8_t> memory(80);
  CHECK_THROWS_WITH_AS(group->broadcast(TensorView(memory.data(), DType::kU8, {80}), 0),
                       doctest::Contains("is not in device memory"), Error);
}

#ifdef TOKENMILL_CUDA_EMULATED
TEST_CASE("transfers of a steady state allocate nothing and keep no copy waiting") {
  DeviceGroup group;
  Tensor part(group, DType::kF32, 1, 1000), all(group, DType::kF32, group.size(), 1000);
  part.set(message(4000, 1, group.rank(), kEveryone));
  const auto step = [&] {
    for (int i = 0; i < 4; ++i) group->wait(group->all_gather(all.parts(), part.flat()));
    group.stream.wait(group.stream.record());
  };
  step();
  const emulation::Counters before = emulation::counters();
  for (int i = 0; i < 10; ++i) step();
  const emulation::Counters after = emulation::counters();
  CHECK(after.device_allocations == before.device_allocations);
  CHECK(after.host_allocations == before.host_allocations);
  CHECK(after.blocking_copies == before.blocking_copies);
  CHECK(after.pageable_copies == before.pageable_copies);
}

TEST_CASE("lazy streams of emulated devices are refused: ranks would wait for ever") {
  const emulation::Settings eager = emulation::settings();
  emulation::Settings lazy = eager;
  lazy.mode = emulation::Mode::kLazy;
  emulation::configure(lazy);
  CHECK_THROWS_WITH_AS(DeviceGroup{}, doctest::Contains("set TOKENMILL_EMULATION_MODE=eager"), AgreedError);
  emulation::configure(eager);
}
#endif

}  // namespace
}  // namespace tokenmill::parallel
