"""The images of docker/, built by `make interop`, in containers of a real engine."""
