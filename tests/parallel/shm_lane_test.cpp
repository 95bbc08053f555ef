#include "parallel/shm_lane.h"

#include <doctest/doctest.h>

#include <cstring>
#include <numeric>
#include <random>
#include <thread>

#include "support/sanitized.h"

namespace tokenmill::parallel {
namespace {

/// Zeroed memory for one lane, aligned.
class LaneMemory {
 public:
  explicit LaneMemory(const LaneShape& shape) : lines_(static_cast<size_t>((lane_bytes(shape) + 63) / 64)) {}
  std::byte* data() { return reinterpret_cast<std::byte*>(lines_.data()); }

 private:
  struct alignas(64) Line {
    std::byte bytes[64];
  };
  std::vector<Line> lines_;
};

SlotLabel label(int64_t begin) { return {.part_bytes = 1000, .begin = begin, .kind = TransferKind::kBroadcast}; }

TEST_CASE("every reader sees every slot in order; a slot is free when all have let go of it") {
  const LaneShape shape{.num_readers = 2, .num_slots = 3, .slot_bytes = 64};
  LaneMemory memory(shape);
  LaneWriter writer(memory.data(), shape);
  LaneReader quick(memory.data(), shape, 0), slow(memory.data(), shape, 1);
  CHECK(quick.full_slot() == nullptr);
  for (int i = 0; i < 3; ++i) {
    std::byte* slot = writer.free_slot();
    REQUIRE(slot != nullptr);
    CHECK(reinterpret_cast<uintptr_t>(slot) % 64 == 0);
    std::memset(slot, i, 64);
    writer.publish(label(i));
  }
  CHECK(writer.free_slot() == nullptr);
  for (int i = 0; i < 3; ++i) {
    REQUIRE(quick.full_slot() != nullptr);
    CHECK(quick.full_slot()[63] == std::byte(i));
    CHECK(quick.label() == label(i));
    quick.release();
  }
  CHECK(quick.full_slot() == nullptr);
  CHECK(writer.free_slot() == nullptr);  // the slow one still has all
  CHECK(slow.full_slot()[0] == std::byte(0));
  slow.release();
  REQUIRE(writer.free_slot() != nullptr);
  std::memset(writer.free_slot(), 3, 64);
  writer.publish(label(3));
  CHECK(writer.free_slot() == nullptr);
  CHECK(slow.full_slot()[0] == std::byte(1));  // not overwritten
  CHECK(quick.full_slot()[0] == std::byte(3));
}

TEST_CASE("threads hand numbers over a lane without losing or mixing any") {
  for (const LaneShape shape : {LaneShape{.num_readers = 1, .num_slots = 1, .slot_bytes = 64},
                                LaneShape{.num_readers = 3, .num_slots = 4, .slot_bytes = 256}}) {
    CAPTURE(shape.num_readers);
    LaneMemory memory(shape);
    const int64_t numbers_in_slot = shape.slot_bytes / 8;
    const int64_t num_slots = test::kSanitized ? 2000 : 20000;
    std::vector<int64_t> wrong(static_cast<size_t>(shape.num_readers));
    {
      std::vector<std::jthread> readers;
      for (int id = 0; id < shape.num_readers; ++id)
        readers.emplace_back([&, id] {
          LaneReader reader(memory.data(), shape, id);
          std::minstd_rand random(static_cast<unsigned>(id + 1));
          for (int64_t i = 0; i < num_slots; ++i) {
            const std::byte* slot = reader.full_slot();
            for (; slot == nullptr; slot = reader.full_slot()) std::this_thread::yield();
            std::vector<int64_t> numbers(static_cast<size_t>(numbers_in_slot));
            std::memcpy(numbers.data(), slot, static_cast<size_t>(shape.slot_bytes));
            for (int64_t j = 0; j < numbers_in_slot; ++j)
              wrong[static_cast<size_t>(id)] += numbers[static_cast<size_t>(j)] != i * numbers_in_slot + j;
            wrong[static_cast<size_t>(id)] += reader.label() != label(i);
            reader.release();
            if (random() % 64 == 0) std::this_thread::yield();
          }
        });
      LaneWriter writer(memory.data(), shape);
      std::vector<int64_t> numbers(static_cast<size_t>(numbers_in_slot));
      for (int64_t i = 0; i < num_slots; ++i) {
        std::byte* slot = writer.free_slot();
        for (; slot == nullptr; slot = writer.free_slot()) std::this_thread::yield();
        std::iota(numbers.begin(), numbers.end(), i * numbers_in_slot);
        std::memcpy(slot, numbers.data(), static_cast<size_t>(shape.slot_bytes));
        writer.publish(label(i));
      }
    }
    for (const int64_t count : wrong) CHECK(count == 0);
  }
}

}  // namespace
}  // namespace tokenmill::parallel
