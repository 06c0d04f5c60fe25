// rmsnorm: launches the kernels of this bundle. C and C++; needs the CUDA driver API.
//
//   rmsnorm_launcher* launcher;
//   rmsnorm_get("build", &launcher);                        // once per device; loads build/<kernel>.<target>.cubin
//   rmsnorm_arguments arguments = rmsnorm_defaults();    // the problem's own values
//   rmsnorm_buffers buffers = { ... };                      // device addresses
//   rmsnorm_run(launcher, &arguments, &buffers, NULL, NULL, 0, stream);
//
// Every call returns a status and none throws. Calls on one launcher may come from several threads. A CUDA context must
// be current, the same one as when the launcher was made. A run allocates nothing and waits for nothing, so that it can
// be captured into a CUDA graph; the arguments and addresses are those of the capture.
#ifndef RMSNORM_H
#define RMSNORM_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum rmsnorm_status {
  RMSNORM_OK = 0,
  RMSNORM_INVALID_ARGUMENT = 1,     // an argument or a pointer that no kernel can take
  RMSNORM_NO_CONTEXT = 2,           // no CUDA context is current on this thread
  RMSNORM_IMAGE_MISSING = 3,        // a cubin that this device needs is not in the folder
  RMSNORM_NO_RUNG = 4,              // no entry of the ladder runs here with these arguments
  RMSNORM_RUNG_UNAVAILABLE = 5,     // the rung that was asked for does not run here with these arguments
  RMSNORM_WORKSPACE_TOO_SMALL = 6,  // see rmsnorm_workspace_bytes
  RMSNORM_OUT_OF_MEMORY = 7,        // host memory
  RMSNORM_DRIVER_ERROR = 8,         // the CUDA driver refused a call
  RMSNORM_BAD_RUNTIME_FILE = 9      // runtime.json is there and does not say what is switched off
} rmsnorm_status;

// The run-time arguments. Extents and strides count elements.
typedef struct rmsnorm_arguments {
  int64_t rows;  // at least 0
  int64_t cols;  // at least 0
  int64_t row_stride;  // at least 1
  int64_t out_stride;  // at least 1
  float eps;
} rmsnorm_arguments;

// Device addresses. None may be null unless there is nothing to launch; one whose extent along K is 0 is not read, so
// any address that is aligned to 16 will do.
typedef struct rmsnorm_buffers {
  const void* X;  // bfloat16, read
  void* Y;  // bfloat16, written
  const void* weight;  // bfloat16, read
} rmsnorm_buffers;

typedef struct rmsnorm_options {
  int sm_budget;     // SMs that the launch may fill; 0: all
  const char* rung;  // a rung of the ladder by name; null: the first that runs
} rmsnorm_options;

typedef struct rmsnorm_launcher rmsnorm_launcher;

// The problem's own arguments.
rmsnorm_arguments rmsnorm_defaults(void);

// A launcher for the current context, with the images of `image_folder`. The caller destroys it. What runtime.json in
// the folder above switches off on this machine is no rung of the ladder; see launcher/runtime_file.h.
rmsnorm_status rmsnorm_create(const char* image_folder, rmsnorm_launcher** launcher);
void rmsnorm_destroy(rmsnorm_launcher* launcher);

// The same, made once per context and shared by every caller of the process; never destroyed.
rmsnorm_status rmsnorm_get(const char* image_folder, rmsnorm_launcher** launcher);

// Launches on `stream`. The workspace is device memory, aligned to 256, of rmsnorm_workspace_bytes bytes, which no
// other launch uses at the same time; null where that is 0. `options` may be null. Extents of 0 launch nothing.
rmsnorm_status rmsnorm_run(const rmsnorm_launcher* launcher, const rmsnorm_arguments* arguments,
    const rmsnorm_buffers* buffers, const rmsnorm_options* options, void* workspace, size_t workspace_bytes,
    CUstream stream);

// The rung that rmsnorm_run takes for the same arguments, and the workspace it needs.
rmsnorm_status rmsnorm_pick(const rmsnorm_launcher* launcher, const rmsnorm_arguments* arguments,
    const rmsnorm_buffers* buffers, const rmsnorm_options* options, const char** rung);
rmsnorm_status rmsnorm_workspace_bytes(const rmsnorm_launcher* launcher, const rmsnorm_arguments* arguments,
    const rmsnorm_buffers* buffers, const rmsnorm_options* options, size_t* bytes);

// One line about what rmsnorm_run does for the same arguments: the rung, its kernels with schedule, cluster,
// image and residency, and why each rung before it does not run. Cut to `text_bytes`.
rmsnorm_status rmsnorm_describe(const rmsnorm_launcher* launcher, const rmsnorm_arguments* arguments,
    const rmsnorm_buffers* buffers, const rmsnorm_options* options, char* text, size_t text_bytes);

// Once for each new workspace, before its first run: zeroes what the kernels expect zero and leave zero.
rmsnorm_status rmsnorm_prepare_workspace(const rmsnorm_launcher* launcher, const rmsnorm_arguments* arguments,
    const rmsnorm_buffers* buffers, const rmsnorm_options* options, void* workspace, size_t workspace_bytes,
    CUstream stream);

// Clusters of a kernel that this device holds at once; 0 where no image of it loads or not even one fits.
rmsnorm_status rmsnorm_residency(const rmsnorm_launcher* launcher, const char* kernel,
    int* max_active_clusters);

// The ladder, best first.
int rmsnorm_rung_count(void);
const char* rmsnorm_rung(int index);

const char* rmsnorm_status_name(rmsnorm_status status);
const char* rmsnorm_last_message(void);  // of the calling thread's last call that failed

#ifdef __cplusplus
}
#endif

#endif  // RMSNORM_H
