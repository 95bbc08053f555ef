#pragma once

/// In front of functions that device code calls too.
#if defined(__CUDACC__)
#define TM_HOST_DEVICE __host__ __device__
#else
#define TM_HOST_DEVICE
#endif
