#include <bit>
#include <cstdio>

#include "kernels/emulation/block/block.h"

namespace tokenmill::emulation {

namespace {

std::string hexadecimal(uint32_t mask) {
  char text[16];
  std::snprintf(text, sizeof text, "0x%08x", mask);
  return text;
}

void check_mask(const Warp& warp, uint32_t mask, const char* what, Site site) {
  if (!(mask >> current_thread->lane & 1)) {
    fail(site, std::string(what) + ": lane " + std::to_string(current_thread->lane) +
                   " calls it and is not in its mask " + hexadecimal(mask));
  }
  if (const uint32_t missing = mask & ~warp.live) {
    fail(site, std::string(what) + ": the mask " + hexadecimal(mask) +
                   " names lanes that have exited or do not exist (" + hexadecimal(missing) + ")");
  }
}

/// The meeting of this mask that is under way, or a free one.
unsigned find_meeting(const Warp& warp, uint32_t mask) {
  for (uint32_t left = warp.active_meetings; left != 0; left &= left - 1) {
    const auto i = static_cast<unsigned>(std::countr_zero(left));
    if (warp.meetings[i].mask == mask) return i;
  }
  return static_cast<unsigned>(std::countr_one(warp.active_meetings));
}

}  // namespace

void meet_warp(uint32_t mask, WarpAction action, void* operands, bool ordered, const char* what, Site site) {
  Block& block = this_block();
  Warp& warp = this_warp();
  check_mask(warp, mask, what, site);
  const unsigned slot = find_meeting(warp, mask);
  WarpMeeting& meeting = warp.meetings[slot];
  if (meeting.arrived == 0) {
    warp.active_meetings |= 1u << slot;
    meeting.mask = mask;
    meeting.action = action;
    meeting.site = site;
  } else if (meeting.action != action || !same_site(meeting.site, site)) {
    fail(site, std::string("divergent ") + what + " with mask " + hexadecimal(mask) +
                   ": other lanes of the mask wait at " + to_string(meeting.site));
  }
  char* token = &meeting.ordered[meeting.round & 1];
  if (ordered) sanitizer::release(token);
  this_fiber().operands = operands;
  meeting.arrived |= 1u << current_thread->lane;
  if (meeting.arrived != mask) {
    wait_for(what, site);
  } else {
    meeting.arrived = 0;
    warp.active_meetings &= ~(1u << slot);
    ++meeting.round;
    WarpOperands all{mask, {}};
    for (uint32_t left = mask; left != 0; left &= left - 1) {
      const int lane = std::countr_zero(left);
      all.lanes[lane] = block.fiber(current_thread->warp, lane).operands;
    }
    if (action) action(all, site);
    make_ready(block, current_thread->warp, mask);
    if (block.order == Order::kRandom && block.random() % 32 == 0) yield();  // other warps overtake here too
  }
  if (ordered) sanitizer::acquire(token);
}

void check_meetings_at_exit(const Warp& warp, unsigned lane) {
  for (uint32_t left = warp.active_meetings; left != 0; left &= left - 1) {
    const WarpMeeting& meeting = warp.meetings[std::countr_zero(left)];
    if (meeting.mask >> lane & 1) {
      fail(meeting.site, "lanes " + hexadecimal(meeting.arrived) + " wait for the mask " + hexadecimal(meeting.mask) +
                             ", and lane " + std::to_string(lane) + " of it has exited");
    }
  }
}

}  // namespace tokenmill::emulation
