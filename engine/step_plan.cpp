// Format 1, little-endian. Counts are u32, ids i32, positions i64; a list is its count, then its items.
//   u8 version | u8 flags (bit 0 dummy, bit 1 stop) | u64 step_id
//   list<i32> finished | list<i32> preempted | list<list<i32>> fresh_blocks
//   list{i32 group, list{i32 source, i32 destination}} copies
//   list{i32 slot, list<i32> token_ids, f32 temperature, f32 top_p, f32 min_p, i32 top_k, u64 key, list<list<i32>>
//   blocks} list{i32 slot, list<list<i32>> blocks} grown list{i32 slot, i64 start, i32 num_tokens, u8 source, list<i32>
//   logits_rows} scheduled
// Every value has one encoding and no byte is left over, so equal plans have equal bytes and bytes that are accepted
// are the bytes that serialize() would give.
#include "engine/step_plan.h"

#include <bit>
#include <cstring>

#include "kernels/core/error.h"

namespace tokenmill {
namespace {

static_assert(std::endian::native == std::endian::little, "plans are copied as they lie in memory");

constexpr uint8_t kVersion = 1;
constexpr uint8_t kDummyFlag = 1;
constexpr uint8_t kStopFlag = 2;

// Where write() puts a plan: first counted, then copied into bytes of exactly that size.
class ByteCount {
 public:
  template <typename T>
  void value(T) {
    size_ += sizeof(T);
  }
  void ids(const std::vector<int32_t>& list) { size_ += sizeof(uint32_t) + list.size() * sizeof(int32_t); }
  size_t size() const { return size_; }

 private:
  size_t size_ = 0;
};

class ByteWriter {
 public:
  explicit ByteWriter(std::byte* at) : at_(at) {}
  template <typename T>
  void value(T x) {
    std::memcpy(at_, &x, sizeof(T));
    at_ += sizeof(T);
  }
  void ids(const std::vector<int32_t>& list) {
    value(static_cast<uint32_t>(list.size()));
    if (list.empty()) return;
    std::memcpy(at_, list.data(), list.size() * sizeof(int32_t));
    at_ += list.size() * sizeof(int32_t);
  }

 private:
  std::byte* at_;
};

template <typename Out, typename T>
void count(Out& out, const std::vector<T>& list) {
  out.value(static_cast<uint32_t>(list.size()));
}

template <typename Out>
void write(Out& out, const std::vector<std::vector<int32_t>>& lists) {
  count(out, lists);
  for (const std::vector<int32_t>& list : lists) out.ids(list);
}

template <typename Out>
void write(Out& out, const SlotSampling& sampling) {
  out.value(sampling.temperature);
  out.value(sampling.top_p);
  out.value(sampling.min_p);
  out.value(sampling.top_k);
  out.value(sampling.key);
}

template <typename Out>
void write(Out& out, const StepPlan& plan) {
  out.value(kVersion);
  out.value(static_cast<uint8_t>((plan.dummy ? kDummyFlag : 0) | (plan.stop ? kStopFlag : 0)));
  out.value(plan.step_id);
  out.ids(plan.finished);
  out.ids(plan.preempted);
  write(out, plan.fresh_blocks);
  count(out, plan.copies);
  for (const GroupCopies& group : plan.copies) {
    out.value(group.group);
    count(out, group.copies);
    for (const BlockCopy& copy : group.copies) {
      out.value(copy.source);
      out.value(copy.destination);
    }
  }
  count(out, plan.new_slots);
  for (const NewSlot& slot : plan.new_slots) {
    out.value(slot.slot);
    out.ids(slot.token_ids);
    write(out, slot.sampling);
    write(out, slot.block_ids);
  }
  count(out, plan.grown);
  for (const GrownSlot& slot : plan.grown) {
    out.value(slot.slot);
    write(out, slot.block_ids);
  }
  count(out, plan.scheduled);
  for (const ScheduledSlot& slot : plan.scheduled) {
    out.value(slot.slot);
    out.value(slot.start);
    out.value(slot.num_tokens);
    out.value(static_cast<uint8_t>(slot.source));
    out.ids(slot.logits_rows);
  }
}

class Reader {
 public:
  explicit Reader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <typename T>
  T value(const char* what) {
    if (left() < sizeof(T)) fail(what, "needs {} bytes, {} are left", sizeof(T), left());
    T x;
    std::memcpy(&x, bytes_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return x;
  }
  // A count of items of at least min_bytes each: refused before anything is allocated for them.
  size_t count(const char* what, size_t min_bytes) {
    const size_t n = value<uint32_t>(what);
    if (n > left() / min_bytes)
      fail(what, "counts {} items of at least {} bytes, {} bytes are left", n, min_bytes, left());
    return n;
  }
  void ids(const char* what, std::vector<int32_t>& out) {
    out.resize(count(what, sizeof(int32_t)));
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + at_, out.size() * sizeof(int32_t));
    at_ += out.size() * sizeof(int32_t);
  }
  void id_lists(const char* what, std::vector<std::vector<int32_t>>& out) {
    out.resize(count(what, sizeof(uint32_t)));
    for (std::vector<int32_t>& list : out) ids(what, list);
  }
  size_t left() const { return bytes_.size() - at_; }

  template <typename... Args>
  [[noreturn]] void fail(const char* what, fmt::format_string<Args...> format, Args&&... args) const {
    throw Error(ErrorKind::kInternal,
                "step plan of {} bytes is damaged: {} at byte {} {}; do all ranks run the same tokenmill?",
                bytes_.size(), what, at_, fmt::format(format, std::forward<Args>(args)...));
  }

 private:
  std::span<const std::byte> bytes_;
  size_t at_ = 0;
};

SlotSampling read_sampling(Reader& in) {
  SlotSampling sampling;
  sampling.temperature = in.value<float>("temperature");
  sampling.top_p = in.value<float>("top_p");
  sampling.min_p = in.value<float>("min_p");
  sampling.top_k = in.value<int32_t>("top_k");
  sampling.key = in.value<uint64_t>("key");
  return sampling;
}

void read_copies(Reader& in, std::vector<GroupCopies>& out) {
  out.resize(in.count("copies", 8));
  for (GroupCopies& group : out) {
    group.group = in.value<int32_t>("copies.group");
    group.copies.resize(in.count("copies of a group", 8));
    for (BlockCopy& copy : group.copies) {
      copy.source = in.value<int32_t>("copy.source");
      copy.destination = in.value<int32_t>("copy.destination");
    }
  }
}

void read_scheduled(Reader& in, std::vector<ScheduledSlot>& out) {
  out.resize(in.count("scheduled", 21));
  for (ScheduledSlot& slot : out) {
    slot.slot = in.value<int32_t>("scheduled.slot");
    slot.start = in.value<int64_t>("scheduled.start");
    slot.num_tokens = in.value<int32_t>("scheduled.num_tokens");
    const auto source = in.value<uint8_t>("scheduled.source");
    if (source > static_cast<uint8_t>(TokenSource::kLastSampled))
      in.fail("scheduled.source", "is {}; 0 and 1 are known", source);
    slot.source = static_cast<TokenSource>(source);
    in.ids("scheduled.logits_rows", slot.logits_rows);
  }
}

}  // namespace

int64_t StepPlan::num_tokens() const {
  int64_t sum = 0;
  for (const ScheduledSlot& slot : scheduled) sum += slot.num_tokens;
  return sum;
}

int64_t StepPlan::num_logits_rows() const {
  int64_t sum = 0;
  for (const ScheduledSlot& slot : scheduled) sum += static_cast<int64_t>(slot.logits_rows.size());
  return sum;
}

std::vector<std::byte> serialize(const StepPlan& plan) {
  ByteCount size;
  write(size, plan);
  std::vector<std::byte> bytes(size.size());
  ByteWriter out(bytes.data());
  write(out, plan);
  return bytes;
}

StepPlan deserialize_step_plan(std::span<const std::byte> bytes) {
  Reader in(bytes);
  const auto version = in.value<uint8_t>("version");
  if (version != kVersion) in.fail("version", "is {}; this program knows {}", version, kVersion);
  const auto flags = in.value<uint8_t>("flags");
  if ((flags & ~(kDummyFlag | kStopFlag)) != 0) in.fail("flags", "are {}; 0 to 3 are known", flags);
  StepPlan plan;
  plan.dummy = (flags & kDummyFlag) != 0;
  plan.stop = (flags & kStopFlag) != 0;
  plan.step_id = in.value<uint64_t>("step_id");
  in.ids("finished", plan.finished);
  in.ids("preempted", plan.preempted);
  in.id_lists("fresh_blocks", plan.fresh_blocks);
  read_copies(in, plan.copies);
  plan.new_slots.resize(in.count("new_slots", 36));
  for (NewSlot& slot : plan.new_slots) {
    slot.slot = in.value<int32_t>("new_slots.slot");
    in.ids("new_slots.token_ids", slot.token_ids);
    slot.sampling = read_sampling(in);
    in.id_lists("new_slots.block_ids", slot.block_ids);
  }
  plan.grown.resize(in.count("grown", 8));
  for (GrownSlot& slot : plan.grown) {
    slot.slot = in.value<int32_t>("grown.slot");
    in.id_lists("grown.block_ids", slot.block_ids);
  }
  read_scheduled(in, plan.scheduled);
  if (in.left() != 0) in.fail("end", "has {} more bytes", in.left());
  return plan;
}

}  // namespace tokenmill
